"use strict";
const WIDTH = 1000, HEIGHT = 500; // units of the pictures
// The values of a chart under the pointer, or by the arrow keys; everything else of the page works without this.
for (const chart of document.querySelectorAll(".chart")) {
  const series = JSON.parse(chart.parentElement.querySelector(".data").textContent);
  const places = [...new Set(series.flatMap((one) => one.points.map((point) => point[0])))].sort((a, b) => a - b);
  const tip = chart.querySelector(".tip");
  const line = document.createElement("span");
  line.className = "at";
  let index = -1;

  const nearest = (points, x) => points.reduce((best, one) => (Math.abs(one[0] - x) < Math.abs(best[0] - x) ? one : best));
  const hide = () => {
    tip.hidden = true;
    line.remove();
  };
  const show = (x) => {
    const place = nearest(places.map((one) => [one]), x)[0];
    index = places.indexOf(place);
    const found = series.map((one) => [one.name, nearest(one.points, place)]);
    tip.textContent = found.map(([name, point]) => `${name} at ${point[2]}: ${point[3]}`).join("\n");
    tip.style.left = place < 0.5 ? `calc(${100 * place}% + 8px)` : "auto";
    tip.style.right = place < 0.5 ? "auto" : `calc(${100 - 100 * place}% + 8px)`;
    line.style.left = `${100 * place}%`;
    tip.hidden = false;
    chart.append(line);
  };
  const follow = (event) => {
    const box = chart.getBoundingClientRect();
    show((event.clientX - box.left) / box.width);
  };
  chart.addEventListener("pointermove", follow);
  chart.addEventListener("pointerdown", follow);
  chart.addEventListener("pointerleave", hide);
  chart.addEventListener("blur", hide);
  chart.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) {
      event.preventDefault();
      show(places[Math.min(Math.max(index + step, 0), places.length - 1)]);
    }
  });
}

// Smoothing: a mean of the points before, each of which counts less by the same share; a curve begins at its first point.
const smooth = (points, share) => {
  let sum = 0, weight = 0;
  return points.map(([x, y]) => {
    sum = share * sum + y;
    weight = share * weight + 1;
    return `${(WIDTH * x).toFixed(1)} ${(HEIGHT * (1 - sum / weight)).toFixed(1)}`;
  });
};
const redraw = (share) => {
  for (const chart of document.querySelectorAll(".chart")) {
    chart.querySelectorAll(".smoothed").forEach((path) => path.remove());
    const series = JSON.parse(chart.parentElement.querySelector(".data").textContent);
    chart.querySelectorAll(".line").forEach((line, place) => {
      const isSmooth = share > 0 && series[place].pieces.length > 0;
      line.classList.toggle("raw", isSmooth);
      if (!isSmooth) return;
      let first = 0;
      const pieces = series[place].pieces.map((length) => series[place].points.slice(first, (first += length)));
      const path = line.cloneNode();
      path.setAttribute("d", pieces.map((piece) => `M${smooth(piece, share).join("L")}`).join(""));
      path.classList.remove("line", "raw");
      path.classList.add("smoothed");
      line.after(path);
    });
  }
};
for (const label of document.querySelectorAll(".smoothing")) {
  label.hidden = false;
  label.querySelector("select").addEventListener("change", (event) => redraw(Number(event.target.value)));
}
