// Reads the event stream with fetch, because EventSource can't send a token.

/** Parses `text/event-stream` like the HTML standard (section 9.2.6). The text may arrive in any pieces. */
class EventParser {
  /** @param onEvent called with `{ type, data }`. */
  constructor(onEvent) {
    this.onEvent = onEvent;
    this.lastID = '';
    this.retry = null;
    this.buffer = '';
    this.endedWithCR = false;
    this.clear();
  }

  clear() {
    this.type = '';
    this.data = [];
  }

  push(text) {
    if (!text) return;
    const chunk = this.endedWithCR && text.startsWith('\n') ? text.slice(1) : text;
    this.endedWithCR = chunk.endsWith('\r');
    const lines = (this.buffer + chunk).split(/\r\n|\n|\r/);
    this.buffer = lines.pop();
    for (const line of lines) this.line(line);
  }

  line(line) {
    if (line === '') return this.dispatch();
    const colon = line.indexOf(':');
    if (colon === 0) return undefined;
    const field = colon < 0 ? line : line.slice(0, colon);
    const start = line[colon + 1] === ' ' ? colon + 2 : colon + 1;
    this.field(field, colon < 0 ? '' : line.slice(start));
    return undefined;
  }

  field(name, value) {
    if (name === 'event') this.type = value;
    else if (name === 'data') this.data.push(value);
    else if (name === 'id' && !value.includes('\0')) this.nextID = value;
    else if (name === 'retry' && /^[0-9]+$/.test(value)) this.retry = Number(value);
  }

  dispatch() {
    this.lastID = this.nextID ?? this.lastID;
    const event = { type: this.type || 'message', data: this.data.join('\n') };
    const isEmpty = this.data.length === 0;
    this.clear();
    if (!isEmpty) this.onEvent(event);
  }
}

/**
 * Receives the events of all jobs. After an interruption it connects again with the last event ID, with growing pauses
 * while the service does not answer. A page that is hidden for a minute closes the stream, because browsers allow few
 * connections per service.
 */
class LiveEvents {
  /**
   * @param onJob called with the job of each event.
   * @param onOpen called when the stream is open.
   * @param onState called with `live`, `paused`, `reconnecting` or `offline`, and a sentence that says why.
   */
  constructor({ onJob, onOpen, onState }) {
    this.onOpen = onOpen;
    this.onState = onState;
    this.failures = 0;
    this.parser = new EventParser(({ data }) => onJob(JSON.parse(data)));
    this.retryNow = () => {};
    window.addEventListener('online', () => this.retryNow());
    document.addEventListener('visibilitychange', () => this.updateStream());
  }

  updateStream() {
    clearTimeout(this.closeTimer);
    if (document.hidden) this.closeTimer = setTimeout(() => this.abort?.abort(), 60_000);
    else this.retryNow();
  }

  async run() {
    for (;;) {
      let why = 'The service ended the stream.';
      let wait = 0;
      try {
        await this.listen();
      } catch (error) {
        why = error.message;
        wait = (error.retryAfter ?? 0) * 1000;
      }
      if (document.hidden) {
        this.onState('paused', '');
        await this.whenVisible();
        continue;
      }
      this.failures += 1;
      this.onState(this.failures > 2 || !navigator.onLine ? 'offline' : 'reconnecting', why);
      await this.backOff(wait);
    }
  }

  async whenVisible() {
    while (document.hidden) {
      await new Promise((resolve) => document.addEventListener('visibilitychange', resolve, { once: true }));
    }
  }

  /** Waits before the next attempt. The wait ends early when the network or the page is back. */
  async backOff(minimum) {
    const backoff = (this.parser.retry ?? 500) * 2 ** Math.min(this.failures - 1, 5);
    const wait = Math.max(minimum, Math.min(backoff, 15_000) * (0.5 + Math.random() / 2));
    await Promise.race([pause(wait), new Promise((resolve) => { this.retryNow = resolve; })]);
    this.retryNow = () => {};
  }

  async listen() {
    const abort = new AbortController();
    this.abort = abort;
    const { parser } = this;
    parser.buffer = '';
    parser.endedWithCR = false;
    parser.clear();
    const headers = { Accept: 'text/event-stream' };
    if (parser.lastID) headers['Last-Event-ID'] = parser.lastID;
    const response = await request('events', { headers, signal: abort.signal, cache: 'no-store' });
    this.onOpen();
    this.onState('live', '');
    this.failures = 0;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    // The service sends a comment at least every 15 s.
    let watchdog;
    try {
      for (;;) {
        clearTimeout(watchdog);
        watchdog = setTimeout(() => abort.abort(), 40_000);
        const { done, value } = await reader.read();
        if (done) return;
        parser.push(value);
        await yieldToBrowser();
      }
    } catch (error) {
      throw new Problem(0, { detail: abort.signal.aborted ? 'The stream was silent for too long.' : 'The stream was interrupted.' });
    } finally {
      clearTimeout(watchdog);
      abort.abort();
    }
  }
}

let lastYield = performance.now();

/** Yields to the browser after 8 ms of work, half a frame. */
async function yieldToBrowser() {
  if (performance.now() - lastYield < 8) return;
  await new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = resolve;
    port2.postMessage(null);
  });
  lastYield = performance.now();
}
