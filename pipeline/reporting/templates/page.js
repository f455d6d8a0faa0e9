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

// Found graphs: pointing at a node, or moving to it by keyboard, shows what it is for. One node is a tab stop.
for (const svg of document.querySelectorAll("svg.graph")) {
  const boxes = [...svg.querySelectorAll(".box")];
  const articles = [...document.querySelectorAll(`[data-nodes="${svg.dataset.graph}"] article`)];
  let pinned = boxes[0];
  function show(box) {
    const id = box.dataset.node;
    for (const article of articles) article.hidden = article.id !== box.getAttribute("aria-controls");
    for (const other of boxes) other.classList.toggle("shown", other === box);
    for (const arrow of svg.querySelectorAll(".arrow")) {
      arrow.classList.toggle("lit", arrow.dataset.from === id || arrow.dataset.to === id);
    }
  }
  function pin(box) {
    pinned = box;
    for (const other of boxes) other.setAttribute("tabindex", other === box ? "0" : "-1");
    show(box);
  }
  boxes.forEach((box, at) => {
    box.addEventListener("pointerenter", () => show(box));
    box.addEventListener("pointerleave", () => show(pinned));
    box.addEventListener("click", () => pin(box));
    box.addEventListener("focus", () => pin(box));
    box.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const goal = event.key === "Home" ? 0 : event.key === "End" ? boxes.length - 1 : step ? at + step : null;
      if (goal === null) return;
      event.preventDefault();
      boxes[(goal + boxes.length) % boxes.length].focus();
    });
  });
  pin(pinned);
}

// Plots, one after the other, so that the page answers in between; first those in view.
const options = { renderer: "svg", actions: false, ast: false, tooltip: { theme: "custom" } };
const json = (kind, name) => {
  const found = document.querySelector(`script[data-${kind}="${name}"]`);
  return found && JSON.parse(found.textContent);
};
async function draw(chart) {
  const name = chart.dataset.chart;
  const { view } = await vegaEmbed(chart, json("spec", name), options);
  const edges = json("edges", name);
  if (edges) steer(chart.closest("figure"), view, edges);
}
function steer(figure, view, edges) {
  const slider = figure.querySelector("input"), output = figure.querySelector("output");
  async function move() {
    const row = edges.probabilities[slider.value];
    const values = edges.pairs
      .map(([source, target], k) => ({ source, target, probability: row[k] }))
      .filter((edge) => edge.probability !== null);
    const word = `${edges.iterations[slider.value]} of ${edges.iterations[edges.iterations.length - 1]}`;
    output.textContent = word;
    slider.setAttribute("aria-valuetext", word);
    await view.data("edges", values).runAsync();
    figure.dataset.shown = edges.iterations[slider.value];
  }
  slider.addEventListener("input", move);
  return move();
}
(async () => {
  const charts = [...document.querySelectorAll("[data-chart]")];
  for (const chart of charts) {
    try {
      await draw(chart);
    } catch (error) {
      chart.textContent = "This plot could not be drawn; see its files and table.";
      console.error(error);
    }
    await new Promise((next) => setTimeout(next));
  }
  root.dataset.ready = String(charts.length);
})();
