internal import Executors
internal import Glibc
internal import Synchronization

/// The progress display of a run on a terminal: a bar for each running job below the lines of finished jobs.
final class ProgressDisplay: Sendable {
  private struct Slot {
    var line: JobLine
    var order: Int
    var measured: (completed: Int, at: ContinuousClock.Instant)
  }

  private struct State {
    var screen: Screen
    var slots: [Int: Slot] = [:]
    var began = 0
    var finished: [String] = []
    var tally = Totals()
    let start = ContinuousClock.now
    var received = 0
    var rate = 0.0
    var measured: (received: Int, at: ContinuousClock.Instant) = (0, .now)
    var isClosed = false
  }

  /// The most finished lines that wait for the next drawing. A run may finish thousands per second.
  private static let mostFinished = 200

  private let style: Style
  private let total: @Sendable () -> Int?
  private let state: Mutex<State>

  /// Draws ten times a second until it is closed.
  /// - Parameter total: Returns the number of URLs in the run, or nil while it is unknown.
  init(on descriptor: Int32, style: Style, total: @escaping @Sendable () -> Int?) {
    (self.style, self.total) = (style, total)
    state = Mutex(State(screen: Screen(descriptor)))
    startThread(named: "display") { [weak self] in
      while self?.tick() == true { usleep(100_000) }
    }
  }

  /// Shows a new job in a slot, unless the slot has one.
  func begin(_ slot: Int, name: @autoclosure () -> String) {
    state.withLock { state in
      guard state.slots[slot] == nil else { return }
      state.began += 1
      state.slots[slot] = Slot(
        line: JobLine(name: name()), order: state.began, measured: (0, .now))
    }
  }

  /// Updates a job.
  /// - Parameter progress: Nil to keep the last progress.
  func show(_ slot: Int, _ phase: JobLine.Phase, _ progress: JobResponse.Progress?) {
    state.withLock { state in
      guard var entry = state.slots[slot] else { return }
      entry.line.phase = phase
      if let progress {
        let completed = max(0, progress.completed)
        state.received += max(0, completed - entry.line.completed)
        entry.line.completed = completed
        entry.line.total = progress.total.map { max(0, $0) }
      }
      state.slots[slot] = entry
    }
  }

  /// Replaces a job's bar with its outcome.
  func finish(_ slot: Int, _ outcome: Outcome, url: String) {
    state.withLock { state in
      state.slots[slot] = nil
      state.tally.count(outcome)
      state.finished.append(style.line(outcome, for: url))
      if state.finished.count >= Self.mostFinished { draw(&state) }
    }
  }

  /// Prints lines above the bars.
  /// - Returns: False once the display is closed.
  func show(_ lines: String) -> Bool {
    state.withLock { state in
      guard !state.isClosed else { return false }
      state.finished += lines.split(whereSeparator: \.isNewline).map(String.init)
      // Draw at once: the caller considers the lines printed, and the process may end soon.
      draw(&state)
      return true
    }
  }

  /// Removes a job that the end of the run cancels.
  func remove(_ slot: Int) {
    state.withLock { state in
      if state.slots.removeValue(forKey: slot) != nil { state.tally.cancelled += 1 }
    }
  }

  /// Removes the bars and prints the totals.
  /// - Parameter cancelled: The number of jobs that were running. Nil: those on the display.
  func close(cancelled: Int? = nil) {
    state.withLock { state in
      guard !state.isClosed else { return }
      state.isClosed = true
      state.tally.cancelled += cancelled ?? state.slots.count
      // If nothing was started, an error message follows, and totals of zero would not help.
      let isEmpty = state.began == 0 && state.tally.done == 0
      let summary = state.tally.summary(elapsed: .now - state.start)
      state.screen.close(state.finished + (isEmpty ? [] : [summary]))
      state.finished = []
    }
  }

  /// - Returns: Whether to continue.
  private func tick() -> Bool {
    state.withLock { state in
      guard !state.isClosed else { return false }
      draw(&state)
      return true
    }
  }

  private func draw(_ state: inout State) {
    measure(&state)
    let size = state.screen.size
    let width = size.columns - 1
    let jobs = state.slots.values.sorted { $0.order < $1.order }.prefix(max(1, size.rows - 3))
    var lines = jobs.map { (text: $0.line.text(width: width, style: style), width: width) }
    let progress = state.tally.progress(
      total: total(), running: state.slots.count, rate: state.rate, elapsed: .now - state.start)
    let totals = PlainText.columns(progress, atMost: width)
    lines.append((text: totals, width: totals.count))
    state.screen.draw(state.finished, lines)
    state.finished = []
  }

  /// Computes smoothed rates over at least half a second.
  private func measure(_ state: inout State) {
    let now = ContinuousClock.now
    for (slot, entry) in state.slots {
      guard
        let rate = Self.rate(
          entry.line.completed - entry.measured.completed, entry.measured.at, now)
      else { continue }
      state.slots[slot]?.line.rate = entry.line.rate * 0.5 + rate * 0.5
      state.slots[slot]?.measured = (entry.line.completed, now)
    }
    if let rate = Self.rate(state.received - state.measured.received, state.measured.at, now) {
      state.rate = state.rate * 0.5 + rate * 0.5
      state.measured = (state.received, now)
    }
  }

  private static func rate(
    _ bytes: Int, _ start: ContinuousClock.Instant, _ now: ContinuousClock.Instant
  ) -> Double? {
    let seconds = (now - start) / .seconds(1)
    return seconds >= 0.5 ? Double(max(0, bytes)) / seconds : nil
  }
}
