// The card of one GPU, after 150 ms of hover or focus; a click on the cell goes to the node with that GPU in focus.

const DELAY_MS = 150;

export function watchCells(wall, query) {
  const card = document.getElementById("gpu-card");
  const cellOf = (target) => target.closest?.("#wall [data-i]");
  let timer = 0;
  let shownFor = null;
  let asking = null;

  function hide() {
    clearTimeout(timer);
    asking?.abort();
    shownFor = null;
    card.hidden = true;
  }

  function place(cell) {
    const box = cell.getBoundingClientRect();
    const parent = card.offsetParent.getBoundingClientRect();
    const left = Math.min(Math.max(8, box.left - parent.left), parent.width - card.offsetWidth - 8);
    const below = box.bottom - parent.top + 8;
    const fits = box.bottom + card.offsetHeight + 16 < innerHeight;
    // Positions are set through the object model, which the policy allows; no style attribute is parsed.
    card.style.left = `${left}px`;
    card.style.top = fits ? `${below}px` : `${box.top - parent.top - card.offsetHeight - 8}px`;
  }

  async function show(cell) {
    const found = wall.placeOf(Number(cell.dataset.i));
    if (!found) return;
    shownFor = cell;
    asking?.abort();
    asking = new AbortController();
    const address = `/fleet/gpu-card/${encodeURIComponent(found.name)}/${found.slot}/?${query()}`;
    try {
      const answer = await fetch(address, {signal: asking.signal, credentials: "same-origin"});
      if (!answer.ok || answer.redirected || shownFor !== cell) return;
      card.innerHTML = await answer.text();
    } catch {
      return;
    }
    if (shownFor !== cell) return;
    card.hidden = false;
    place(cell);
  }

  function awaken(cell) {
    if (cell === shownFor) return;
    hide();
    timer = setTimeout(() => show(cell), DELAY_MS);
  }

  document.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return;
    const cell = cellOf(event.target);
    if (cell) awaken(cell);
    else if (!card.contains(event.target)) hide();
  });
  document.addEventListener("focusin", (event) => {
    const cell = cellOf(event.target);
    if (cell) awaken(cell);
    else hide();
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  document.addEventListener("click", (event) => {
    const cell = cellOf(event.target);
    const found = cell && wall.placeOf(Number(cell.dataset.i));
    if (!found || event.metaKey || event.ctrlKey || event.button) return;
    event.preventDefault();
    const past = new URLSearchParams(location.search).get("at");
    const rest = past ? `&at=${encodeURIComponent(past)}` : "";
    location.href = `/nodes/${encodeURIComponent(found.name)}/?gpu=${found.slot}${rest}`;
  });
  watchArrows(wall);
}

/** Arrow keys move between cells by where they are on the screen. */
function watchArrows(wall) {
  const STEPS = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
  document.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    const from = document.activeElement;
    if (!step || event.ctrlKey || event.metaKey || event.altKey || !wall.root.contains(from)) {
      if (event.key === "Enter" && from?.matches?.("#wall [data-i]")) from.click();
      return;
    }
    event.preventDefault();
    const start = from.matches("[data-i]") ? from : from.querySelector("[data-i]");
    if (!start) return;
    const target = from === start ? nearest(wall.cells, start, step) : start;
    if (!target) return;
    start.removeAttribute("tabindex");
    target.tabIndex = -1;
    target.focus();
  });
}

function nearest(cells, from, [dx, dy]) {
  const a = from.getBoundingClientRect();
  const x = a.left + a.width / 2;
  const y = a.top + a.height / 2;
  let best = null;
  let least = Infinity;
  for (const cell of cells) {
    if (!cell || cell === from) continue;
    const b = cell.getBoundingClientRect();
    const along = dx ? (b.left + b.width / 2 - x) * dx : (b.top + b.height / 2 - y) * dy;
    const aside = Math.abs(dx ? b.top + b.height / 2 - y : b.left + b.width / 2 - x);
    if (along <= 1) continue;
    const distance = along + 8 * aside;
    if (distance < least) { least = distance; best = cell; }
  }
  return best;
}
