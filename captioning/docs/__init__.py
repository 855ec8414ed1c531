"""The pages of the project as a site, with a table of every setting made from the code."""
