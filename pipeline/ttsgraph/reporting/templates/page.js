"use strict";
const root = document.documentElement;

// Theme: a switch over what the system prefers; colours are CSS variables, so that nothing has to be drawn again.
const theme = document.getElementById("theme");
function showTheme() {
  const dark = root.dataset.theme === "dark";
  theme.textContent = dark ? "Light theme" : "Dark theme";
  theme.setAttribute("aria-pressed", String(dark));
}
theme.addEventListener("click", () => {
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("ttsgraph-theme", root.dataset.theme); } catch { /* kept for this visit only */ }
  showTheme();
});
showTheme();

// Which graph serves is the registry's to say: a script beside the page says where it is another one.
for (const line of document.querySelectorAll("[data-beside]")) {
  line.textContent = (window.ttsgraphServing || {})[line.dataset.beside] || "";
  line.hidden = !line.textContent;
}

// The test questions that a reader asks for: by the marks of each graph's answer, and by words.
for (const form of document.querySelectorAll("form.filters")) {
  const rows = [...form.nextElementSibling.children];
  function filter() {
    const words = form.elements.words.value.toLowerCase();
    const wanted = form.elements.show.value.split(" ").filter(Boolean).map((each) => each.split(":"));
    let shown = 0;
    for (const row of rows) {
      const marks = row.dataset.marks.split(",");
      const fits = wanted.every(([place, mark]) => marks[place] === mark) && row.textContent.toLowerCase().includes(words);
      row.hidden = !fits;
      shown += fits;
    }
    form.querySelector("output").textContent = `${shown} of ${rows.length} questions`;
  }
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", filter);
  filter();
}
root.dataset.ready = "yes";
