// Reads the event stream with fetch, because EventSource can't send a token.

/** Parses `text/event-stream` like the HTML standard (section 9.2.6). The text may arrive in any pieces. */
class EventParser {
  /** @param onEvent called with `{ type, data }`. */
  constructor(onEvent) {
    this.onEvent = onEvent;
    this.lastID = '';
    this.retry = null;
    this.rest = '';
    this.endedWithCR = false;
    this.clear();
  }

  clear() {
    this.type = '';
    this.data = [];
  }

  push(text) {
    if (!text) return;
    const whole = this.endedWithCR && text.startsWith('\n') ? text.slice(1) : text;
    this.endedWithCR = whole.endsWith('\r');
    const lines = (this.rest + whole).split(/\r\n|\n|\r/);
    this.rest = lines.pop();
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
    this.hurry = () => {};
    window.addEventListener('online', () => this.hurry());
    document.addEventListener('visibilitychange', () => this.look());
  }

  look() {
    clearTimeout(this.leaving);
    if (document.hidden) this.leaving = setTimeout(() => this.abort?.abort(), 60_000);
    else this.hurry();
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
        await this.seen();
        continue;
      }
      this.failures += 1;
      this.onState(this.failures > 2 || !navigator.onLine ? 'offline' : 'reconnecting', why);
      await this.rest(wait);
    }
  }

  async seen() {
    while (document.hidden) {
      await new Promise((resolve) => document.addEventListener('visibilitychange', resolve, { once: true }));
    }
  }

  /** Waits before the next attempt. The wait ends early when the network or the page is back. */
  async rest(atLeast) {
    const backoff = (this.parser.retry ?? 500) * 2 ** Math.min(this.failures - 1, 5);
    const wait = Math.max(atLeast, Math.min(backoff, 15_000) * (0.5 + Math.random() / 2));
    await Promise.race([pause(wait), new Promise((resolve) => { this.hurry = resolve; })]);
    this.hurry = () => {};
  }

  async listen() {
    const abort = new AbortController();
    this.abort = abort;
    const { parser } = this;
    parser.rest = '';
    parser.endedWithCR = false;
    parser.clear();
    const headers = { Accept: 'text/event-stream' };
    if (parser.lastID) headers['Last-Event-ID'] = parser.lastID;
    const response = await ask('events', { headers, signal: abort.signal, cache: 'no-store' });
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
        await breath();
      }
    } catch (error) {
      throw new Problem(0, { detail: abort.signal.aborted ? 'The stream was silent for too long.' : 'The stream was interrupted.' });
    } finally {
      clearTimeout(watchdog);
      abort.abort();
    }
  }
}

let breathed = performance.now();

/** Yields to the browser after 8 ms of work, half a frame. */
async function breath() {
  if (performance.now() - breathed < 8) return;
  await new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = resolve;
    port2.postMessage(null);
  });
  breathed = performance.now();
}
