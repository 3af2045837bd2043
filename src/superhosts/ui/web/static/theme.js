// Chooses light or dark before the first paint; runs before everything else, so it is not a module.
(() => {
  let wanted = "auto";
  try {
    wanted = localStorage.getItem("superhosts-theme") || "auto";
  } catch {
    // Storage may be forbidden; the system's choice counts then.
  }
  if (wanted === "light" || wanted === "dark") document.documentElement.dataset.theme = wanted;
})();
