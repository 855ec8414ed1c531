// What needs a script shows itself, and every data set's section begins.

for (const part of document.querySelectorAll("[data-script]")) part.hidden = false;
for (const section of document.querySelectorAll(".data-set")) {
  const data = parsed(section, "data");
  setUpTable(section.querySelector(".table"), data);
  if (section.querySelector(".pairs")) setUpPairs(section.querySelector(".pairs"), data);
  if (section.querySelector(".gallery")) setUpLegend(section, new Gallery(section, data));
}
