// Small bar charts. Bars go up from a line and, for failed or running jobs, down from it. A chart has a scale, times,
// and a tooltip.

class Chart {
  /** @param names the words for the bars that go up and for those that go down. */
  constructor(canvas, names) {
    this.canvas = canvas;
    this.names = names;
    this.bars = [];
    this.pointer = null;
    const element = (name) => {
      const part = document.createElement('span');
      part.className = name;
      part.setAttribute('aria-hidden', 'true');
      canvas.parentElement.append(part);
      return part;
    };
    this.parts = {
      up: element('scale up'), down: element('scale down'), from: element('from'), to: element('to'), tip: element('tip'),
    };
    canvas.addEventListener('pointermove', (event) => this.point(event.offsetX));
    canvas.addEventListener('pointerleave', () => this.point(null));
  }

  /**
   * @param bars `{ up, down }`, oldest first.
   * @param step the length of a bar in seconds.
   * @param end the end of the last bar, by the service's clock.
   */
  show(bars, step, end) {
    Object.assign(this, { bars, step, end });
    this.draw();
    const most = (key) => Math.max(0, ...bars.map((bar) => bar[key]));
    const [up, down] = [most('up'), most('down')];
    setText(this.parts.up, up ? number.format(up) : '');
    setText(this.parts.down, down ? number.format(down) : '');
    setText(this.parts.from, `${Math.round((bars.length * step) / 60)} min ago`);
    setText(this.parts.to, 'now');
    this.point(this.pointer);
  }

  /** Shows the values of the bar under the pointer. */
  point(x) {
    this.pointer = x;
    const { tip } = this.parts;
    const index = x === null ? -1 : Math.floor((x / this.canvas.clientWidth) * this.bars.length);
    const bar = this.bars[index];
    tip.hidden = !bar;
    if (!bar) return;
    const time = this.end - (this.bars.length - index) * this.step * 1000;
    setText(tip, `${clockTime(time)}: ${number.format(bar.up)} ${this.names.up}, ${number.format(bar.down)} ${this.names.down}`);
    // The tooltip stays within the chart.
    const share = (index + 0.5) / this.bars.length;
    tip.style.insetInline = share < 0.5 ? `${100 * share}% auto` : `auto ${100 * (1 - share)}%`;
  }

  draw() {
    const { canvas, bars } = this;
    const { clientWidth: width, clientHeight: height } = canvas;
    if (!width) return;
    const ratio = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
    if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
    const style = getComputedStyle(canvas);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const context = canvas.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const most = (key) => Math.max(0, ...bars.map((bar) => bar[key]));
    const [up, down] = [most('up'), most('down')];
    const unit = (height - 2) / Math.max(1, up + down);
    const line = Math.round(height - 1 - down * unit);
    const step = width / bars.length;
    bars.forEach((bar, index) => {
      const x = Math.round(index * step);
      const w = Math.max(1, Math.round((index + 1) * step) - x - 1);
      context.fillStyle = colour('up');
      if (bar.up) context.fillRect(x, line - Math.max(1, bar.up * unit), w, Math.max(1, bar.up * unit));
      context.fillStyle = colour('down');
      if (bar.down) context.fillRect(x, line + 1, w, Math.max(1, bar.down * unit));
    });
    context.fillStyle = colour('line');
    context.fillRect(0, line, width, 1);
  }
}

/** The length of a bar of the service's activity in seconds. A multiple of its steps. */
const barSeconds = 15;

/**
 * Converts the service's activity to bars. Bars begin at multiples of their length, so that a complete bar does not
 * change.
 *
 * @param count the number of bars. The last one is not complete.
 * @param now the time by the service's clock.
 * @param latest the values since the last step ended.
 * @param isSum whether a bar is the sum of its steps; otherwise their maximum.
 */
function activityBars({ interval, end, ...columns }, count, now, [up, down], latest, isSum) {
  const join = isSum ? (a, b) => a + b : Math.max;
  const first = Math.floor(Math.max(now, Date.parse(end)) / 1000 / barSeconds) - count + 1;
  const bars = Array.from({ length: count }, () => ({ up: 0, down: 0 }));
  const add = (bar, more) => {
    if (!bar) return;
    bar.up = join(bar.up, more.up);
    bar.down = join(bar.down, more.down);
  };
  const steps = columns[up].length;
  for (let step = 0; step < steps; step += 1) {
    // A step belongs to the bar that contains its middle.
    const middle = Date.parse(end) / 1000 - (steps - step - 0.5) * interval;
    add(bars[Math.floor(middle / barSeconds) - first], { up: columns[up][step], down: columns[down][step] });
  }
  add(bars.at(-1), latest);
  return bars;
}

/** The end of the last bar. */
const barsEnd = ({ end }, now) => (
  (Math.floor(Math.max(now, Date.parse(end)) / 1000 / barSeconds) + 1) * barSeconds * 1000);
