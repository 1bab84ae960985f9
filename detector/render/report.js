// The page's own script: timelines that zoom and pan, jumps from the overview, buttons that copy.
// Every text reaches the page as text: nothing here writes markup.
"use strict";
(() => {
  const ROW = 17, LABEL = 18, GAP = 6, RULER = 20, LEAST_US = 0.05;
  const block = document.getElementById("data");
  const data = block ? JSON.parse(block.textContent) : { timelines: {}, overview: null };
  const timelines = [];

  // A time with three digits; with a step, an instant that differs from those a step away.
  function duration(us, step) {
    const [scale, unit] = Math.abs(us) >= 1e6 ? [1e6, "s"] : Math.abs(us) >= 1e3 ? [1e3, "ms"] : [1, "µs"];
    if (!step) return `${Number((us / scale).toPrecision(3))} ${unit}`;
    const digits = Math.min(Math.max(Math.ceil(-Math.log10(step / scale) - 1e-9), 0), 9);
    return `${(us / scale).toFixed(digits)} ${unit}`;
  }

  function colors() {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(`--${name}`).trim();
    return { ink: of("ink"), soft: of("soft"), line: of("line"), band: of("band"), paper: of("card"),
      host: of("host-bar"), device: of("device-bar"), fault: of("fault"), onFault: of("on-fault"),
      onBar: of("on-bar"), focus: of("focus") };
  }

  // --- a timeline -------------------------------------------------------------------------------

  function Timeline(figure, excerpt) {
    const canvas = figure.querySelector("canvas");
    const tip = figure.querySelector(".tip");
    const bubble = figure.querySelector(".bubble");
    const length = Math.max(excerpt.length, LEAST_US);
    const bars = [];
    let height = RULER;
    for (const track of excerpt.tracks) {
      track.top = height;
      const levels = Math.max(0, ...track.depth) + 1;
      const fault = new Set(track.at_fault);
      track.start_us.forEach((start, i) => bars.push({
        start, end: start + track.dur_us[i], busy: track.busy_us[i], count: track.count[i],
        y: height + LABEL + ROW * track.depth[i], fault: fault.has(i), track,
        name: excerpt.names[track.name[i]] }));
      height += LABEL + ROW * levels + GAP;
    }
    bars.sort((a, b) => a.fault - b.fault || a.start - b.start);
    const faults = bars.filter((bar) => bar.fault);
    let from = 0, to = length, chosen = null, waiting = false;

    const width = () => canvas.clientWidth || 1;
    const x = (us) => (us - from) / (to - from) * width();
    const us = (px) => from + px / width() * (to - from);

    function show(a, b) {
      const span = Math.min(Math.max(b - a, LEAST_US), length);
      bubble.hidden = true;
      from = Math.min(Math.max(a, 0), length - span);
      to = from + span;
      later();
    }
    function zoom(factor, at) {
      const middle = at === undefined ? (from + to) / 2 : at;
      show(middle - (middle - from) / factor, middle + (to - middle) / factor);
    }
    const pan = (part) => show(from + part * (to - from), to + part * (to - from));

    function later() {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; draw(); });
    }

    function draw() {
      const ratio = window.devicePixelRatio || 1, wide = width();
      canvas.style.height = `${height}px`;
      canvas.width = Math.round(wide * ratio);
      canvas.height = Math.round(height * ratio);
      const c = canvas.getContext("2d"), color = colors();
      c.scale(ratio, ratio);
      c.font = "11px system-ui, sans-serif";
      c.textBaseline = "middle";
      ruler(c, color, wide);
      spans(c, color);
      for (const track of excerpt.tracks) {
        c.fillStyle = color.soft;
        c.fillText(clipped(c, track.label, wide - 8), 2, track.top + LABEL / 2);
      }
      for (const bar of bars) paint(c, color, bar, wide);
      if (chosen) {
        c.strokeStyle = color.focus;
        c.lineWidth = 2;
        c.strokeRect(x(chosen.start), chosen.y, Math.max(x(chosen.end) - x(chosen.start), 2), ROW - 2);
      }
    }

    function ruler(c, color, wide) {
      const about = (to - from) / Math.max(wide / 110, 2), power = 10 ** Math.floor(Math.log10(about));
      const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= about);
      c.strokeStyle = color.line;
      c.fillStyle = color.soft;
      c.lineWidth = 1;
      for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
        const at = Math.round(x(t)) + 0.5, text = `+${duration(t, step)}`;
        c.beginPath(); c.moveTo(at, RULER - 4); c.lineTo(at, height); c.stroke();
        if (at + c.measureText(text).width < wide) c.fillText(text, at + 3, RULER / 2);
      }
    }

    function spans(c, color) {
      c.fillStyle = color.fault;
      for (const [a, b] of excerpt.spans) {
        const left = x(a), wide = Math.max(x(b) - left, 1);
        c.globalAlpha = 0.09;
        c.fillRect(left, RULER, wide, height - RULER);
        c.globalAlpha = 1;
        c.fillRect(left, RULER - 4, wide, 3);
      }
    }

    function paint(c, color, bar, wide) {
      const left = Math.max(x(bar.start), -1), right = Math.min(x(bar.end), wide + 1);
      if (right < 0 || left > wide) return;
      const size = Math.max(right - left - 0.5, 1);
      const full = Math.min(bar.busy / Math.max(bar.end - bar.start, 1e-9), 1);
      c.globalAlpha = bar.count > 1 ? 0.35 + 0.45 * full : 1;
      c.fillStyle = bar.fault ? color.fault : bar.track.is_device ? color.device : color.host;
      c.fillRect(left, bar.y, size, ROW - 2);
      c.globalAlpha = 1;
      if (bar.fault) { c.fillStyle = color.ink; c.fillRect(left, bar.y + ROW - 4, size, 2); }
      if (size < 28) return;
      const name = bar.count > 1 ? `${bar.count} events` : bar.name;
      c.fillStyle = bar.count > 1 ? color.ink : bar.fault ? color.onFault : color.onBar;
      c.fillText(clipped(c, name, size - 6), left + 3, bar.y + ROW / 2 - 1);
    }

    function clipped(c, text, room) {
      if (c.measureText(text).width <= room) return text;
      let least = 0, most = text.length;
      while (least < most) {
        const middle = Math.ceil((least + most) / 2);
        if (c.measureText(`${text.slice(0, middle)}…`).width <= room) least = middle;
        else most = middle - 1;
      }
      return least > 1 ? `${text.slice(0, least)}…` : "";
    }

    function at(px, py) {
      const near = (bar) => py >= bar.y && py < bar.y + ROW && px >= x(bar.start) - 2 && px <= x(bar.end) + 2;
      return bars.filter(near).sort((a, b) => (a.end - a.start) - (b.end - b.start))[0] || null;
    }

    function describe(bar) {
      const when = `${duration(bar.end - bar.start)} at ${bar.start < 0 ? "" : "+"}${duration(bar.start, (to - from) / 1000)}, ${bar.track.label}`;
      const fault = bar.fault ? ", at fault" : "";
      if (bar.count === 1) return `${bar.name}: ${when}${fault}`;
      return `${bar.count} short events, ${duration(bar.busy)} of ${when}${fault}; longest: ${bar.name}`;
    }

    function choose(bar) {
      if (bar === chosen) return;
      chosen = bar;
      tip.textContent = bar ? describe(bar) : tip.dataset.rest;
      later();
    }

    function point(px, py) {
      bubble.hidden = !chosen;
      if (!chosen) return;
      bubble.textContent = describe(chosen);
      const wide = bubble.offsetWidth, below = py + 20 + bubble.offsetHeight < height;
      bubble.style.left = `${Math.max(Math.min(px + 12, width() - wide), 0)}px`;
      bubble.style.top = `${below ? py + 20 : py - bubble.offsetHeight - 8}px`;
    }

    function next(step) {
      if (!faults.length) return;
      const now = faults.indexOf(chosen);
      const bar = faults[now < 0 ? (step > 0 ? 0 : faults.length - 1) : (now + step + faults.length) % faults.length];
      const span = Math.min(to - from, Math.max((bar.end - bar.start) * 20, LEAST_US * 20));
      if (bar.start < from || bar.end > to || x(bar.end) - x(bar.start) < 4) {
        show((bar.start + bar.end - span) / 2, (bar.start + bar.end + span) / 2);
      }
      choose(bar);
      point(Math.max(x(bar.start), 0), bar.y);
    }

    const acts = {
      in: () => zoom(2), out: () => zoom(0.5), left: () => pan(-0.2), right: () => pan(0.2),
      all: () => show(0, length), next: () => next(1), previous: () => next(-1) };
    const keys = { "+": "in", "=": "in", "-": "out", _: "out", ArrowUp: "in", ArrowDown: "out",
      ArrowLeft: "left", ArrowRight: "right", 0: "all", Home: "all", n: "next", p: "previous" };
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Escape") rest();
      const act = acts[keys[event.key]];
      if (act) { event.preventDefault(); act(); }
    });
    for (const button of figure.querySelectorAll("button[data-act]")) {
      button.addEventListener("click", () => acts[button.dataset.act]());
    }
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
      event.preventDefault();
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        pan((event.deltaX || event.deltaY) / width());
      } else zoom(Math.exp(-event.deltaY / 300), us(event.offsetX));
    }, { passive: false });

    function look(event) {
      choose(at(event.offsetX, event.offsetY));
      point(event.offsetX, event.offsetY);
    }
    const rest = () => { choose(null); point(0, 0); };
    const down = new Map();
    canvas.addEventListener("pointerdown", (event) => {
      down.set(event.pointerId, event.offsetX);
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = down.get(event.pointerId);
      if (before === undefined) { look(event); return; }
      const other = [...down].find(([id]) => id !== event.pointerId);
      down.set(event.pointerId, event.offsetX);
      if (other) {
        const was = Math.abs(before - other[1]), is = Math.abs(event.offsetX - other[1]);
        if (was > 8 && is > 8) zoom(is / was, us((event.offsetX + other[1]) / 2));
      } else pan((before - event.offsetX) / width());
    });
    for (const kind of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(kind, (event) => {
        if (kind === "pointerup") look(event);
        down.delete(event.pointerId);
      });
    }
    canvas.addEventListener("pointerleave", () => { if (!down.size) rest(); });
    canvas.addEventListener("blur", rest);
    canvas.addEventListener("dblclick", (event) => zoom(3, us(event.offsetX)));
    new ResizeObserver(later).observe(canvas);
    for (const tools of figure.querySelectorAll(".tools")) tools.hidden = false;
    tip.textContent = tip.dataset.rest;
    draw();
    Object.assign(this, { draw, later, show, canvas, length, state: () => ({ from, to, chosen: chosen && chosen.name }) });
  }

  for (const figure of document.querySelectorAll("figure.timeline")) {
    const number = Number(figure.dataset.finding);
    timelines[number] = new Timeline(figure, data.timelines[number]);
  }

  // --- the overview -----------------------------------------------------------------------------

  function nearest(time) {
    let best = null;
    data.overview.findings.forEach(({ number, spans }) => {
      for (const [a, b] of spans) {
        const away = Math.max(a - time, time - b, 0);
        if (!best || away < best.away) best = { number, away };
      }
    });
    return best;
  }

  for (const strip of document.querySelectorAll(".overview svg.strip")) {
    strip.addEventListener("click", (event) => {
      if (strip.closest("a")) return;
      const box = strip.getBoundingClientRect(), { start, end } = data.overview;
      const found = nearest(start + (event.clientX - box.left) / box.width * (end - start));
      if (!found) return;
      location.hash = `finding-${found.number}`;
      const timeline = timelines[found.number];
      if (timeline) timeline.canvas.focus({ preventScroll: true });
    });
    if (data.overview && data.overview.findings.length) strip.classList.add("jumps");
  }

  // --- copying ----------------------------------------------------------------------------------

  async function copy(button) {
    const code = button.parentElement.querySelector("pre");
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch (refused) { // a page from a file may not use the clipboard: what is selected may be copied
      getSelection().selectAllChildren(code);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  for (const button of document.querySelectorAll("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", () => copy(button));
  }

  // --- colors and paper ------------------------------------------------------------------------

  const redraw = () => timelines.forEach((timeline) => timeline.draw());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("beforeprint", () => { document.documentElement.classList.add("paper"); redraw(); });
  addEventListener("afterprint", () => { document.documentElement.classList.remove("paper"); redraw(); });
})();
