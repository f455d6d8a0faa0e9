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
  chart.querySelector("svg").setAttribute("aria-hidden", "true"); // the figure has its text alternative and its table
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
async function drawAll(charts) {
  for (const chart of charts) {
    if (chart.dataset.drawn) continue;
    chart.dataset.drawn = "yes";
    try {
      await draw(chart);
    } catch (error) {
      chart.textContent = "This plot could not be drawn; see its files and table.";
      console.error(error);
    }
    await new Promise((next) => setTimeout(next));
  }
}

// What is folded is drawn when it is opened: a plot needs a width. A link into a fold opens it.
const folds = [...document.querySelectorAll("details.fold")];
for (const fold of folds) {
  fold.addEventListener("toggle", () => fold.open && drawAll([...fold.querySelectorAll("[data-chart]")]));
}
function openTarget() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const fold = target && target.closest("details.fold");
  if (fold) { fold.open = true; target.scrollIntoView(); }
}
window.addEventListener("hashchange", openTarget);
window.addEventListener("beforeprint", () => folds.forEach((fold) => { fold.open = true; }));

// The test questions: those that the reader asks for, a page at a time. Texts are of models, so they are never markup.
const PAGE = 25;
const element = (tag, text, name) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
};
const verdict = (right) => typeof right === "number" ? element("span", right.toFixed(2), right > 0.5 ? "right" : "wrong")
  : element("span", right === null ? "not scored" : right ? "right" : "wrong", right ? "right" : right === null ? "" : "wrong");
const apart = (question) => new Set(Object.values(question.nodes).map(([form]) => form)).size > 1;
function showsOf(asked) {
  const rival = asked.kinds.map((kind, k) => [kind, k]).filter(([kind]) => kind !== "found");
  return [
    ["every question", () => true],
    ["what was found is wrong", (q) => q.right[0] === false],
    ["what was found is right", (q) => q.right[0] === true],
    ...rival.map(([, k]) => [`right, but not: ${asked.arms[k]}`, (q) => q.right[0] === true && q.right[k] === false]),
    ...rival.map(([, k]) => [`wrong, but right: ${asked.arms[k]}`, (q) => q.right[0] === false && q.right[k] === true]),
    ["its calls differ", apart],
    ["not scored", (q) => q.right.includes(null)],
  ];
}
function answersTable(caption, heads, rows) {
  const table = element("table"), head = element("tr"), body = element("tbody");
  table.append(element("caption", caption));
  for (const name of heads) { const cell = element("th", name); cell.scope = "col"; head.append(cell); }
  table.append(element("thead"));
  table.tHead.append(head);
  for (const [name, form, right] of rows) {
    const row = element("tr"), first = element("th", name), last = element("td");
    first.scope = "row";
    last.append(verdict(right));
    row.append(first, element("td", form), last);
    body.append(row);
  }
  table.append(body);
  return table;
}
function questionDetails(asked, question) {
  const details = element("details"), summary = element("summary");
  summary.append(verdict(question.right[0]), " ", element("span", question.text.slice(0, 110)));
  details.append(summary);
  details.addEventListener("toggle", () => {
    if (!details.open || details.childElementCount > 1) return;
    const text = element("pre", question.text);
    text.tabIndex = 0;
    text.setAttribute("aria-label", `question ${question.id}`);
    details.append(text, element("p", `Expected: ${question.expected}`));
    details.append(answersTable("Answers", ["graph", "answer", "verdict"], asked.arms.map((name, k) => [name, question.forms[k], question.right[k]])));
    const nodes = Object.entries(question.nodes).map(([id, [form, right]]) => [`node ${id}: ${asked.nodes[id] || ""}`, form, right]);
    if (nodes.length) details.append(answersTable("Calls of what was found", ["call", "answer", "verdict"], nodes));
  });
  return details;
}
for (const box of document.querySelectorAll("[data-asked]")) {
  const asked = json("questions", box.dataset.asked), shows = showsOf(asked);
  const [select, words, count] = ["select", "input", "output"].map((tag) => box.querySelector(tag));
  const list = box.querySelector(".list"), more = box.querySelector(".more");
  let chosen = [], upTo = 0;
  shows.forEach(([name], k) => select.append(new Option(name, k)));
  function add() {
    list.append(...chosen.slice(upTo, upTo + PAGE).map((question) => questionDetails(asked, question)));
    upTo += PAGE;
    more.hidden = upTo >= chosen.length;
  }
  function filter() {
    const wanted = words.value.toLowerCase(), [, fits] = shows[select.value];
    const has = (q) => [q.text, q.expected, ...q.forms].some((text) => text.toLowerCase().includes(wanted));
    chosen = asked.questions.filter((q) => fits(q) && has(q));
    count.textContent = `${chosen.length} of ${asked.questions.length} questions`;
    list.replaceChildren();
    upTo = 0;
    add();
  }
  box.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
  select.addEventListener("change", filter);
  words.addEventListener("input", filter);
  more.addEventListener("click", add);
  filter();
}

(async () => {
  const charts = [...document.querySelectorAll("[data-chart]")].filter((chart) => !chart.closest("details.fold:not([open])"));
  await drawAll(charts);
  openTarget();
  root.dataset.ready = String(charts.length);
})();
