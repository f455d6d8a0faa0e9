// Before anything is painted: the theme that was chosen here, else what the system prefers.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("ttsgraph-theme"); } catch { /* storage is closed to files in some browsers */ }
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
