// The curves: against epochs or time. Which systems are shown, here and in the gallery, is said once.

function setUpCurves(section) {
  const choose = (label) => {
    for (const figure of section.querySelectorAll("[data-against]")) figure.hidden = figure.dataset.against !== label;
  };
  const measures = [...section.querySelectorAll(".curves input[type=radio]")];
  for (const measure of measures) measure.addEventListener("change", () => choose(measure.value));
  if (measures.length) choose(measures.find((measure) => measure.checked).value);
}

function setUpLegend(section, gallery) {
  for (const box of section.querySelectorAll("[data-show]")) {
    const show = () => {
      for (const curve of section.querySelectorAll(`g[data-system="${box.dataset.show}"]`)) {
        curve.style.display = box.checked ? "" : "none";
      }
      gallery?.show(Number(box.dataset.show), box.checked);
    };
    box.addEventListener("change", show);
    if (!box.checked) show(); // a browser keeps what was chosen before the page was opened anew
  }
}
