"use strict";
// The registry decides which graph serves: a script next to the page reports a graph that differs from the page's.
for (const line of document.querySelectorAll("[data-beside]")) {
  line.textContent = (window.ttsgraphServing || {})[line.dataset.beside] || "";
  line.hidden = !line.textContent;
}

// Filter of the test questions: by the marks of each graph's answer, and by text.
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
document.documentElement.dataset.ready = "yes";
