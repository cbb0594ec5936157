internal import Synchronization

/// Collects what a run has to tell. ``show()`` puts it on the board; the engine calls that ten times a second, so that
/// the newest state is always shown, however little comes after it.
final class Reporter: Sendable {
  private struct State {
    var report: RunReport
    var began = ContinuousClock.now
    var decodeTime = Duration.zero
    var isShown = true
  }

  private let id: JobID
  private let board: JobBoard
  private let state: Mutex<State>

  init(job: Job, board: JobBoard) {
    id = job.id
    self.board = board
    state = Mutex(State(report: RunReport(of: job)))
  }

  /// A request is about to be sent: nothing of an earlier one counts.
  func restart() {
    note { state in
      state.began = .now
      state.report.progress = Progress()
    }
  }

  /// One more request to the origin than the one that taking the job stands for.
  func countAttempt() { note { $0.report.attempts += 1 } }

  func expect(total: Int) { note { $0.report.progress.total = total } }

  func responseCame(_ response: FetchedResponse) {
    note { state in
      state.report.progress.total = response.contentLength
      state.report.timings.dns = response.timings.dns
      state.report.timings.connect = response.timings.connect
      state.report.timings.tls = response.timings.tls
      state.report.timings.firstByte = response.timings.firstByte
    }
  }

  func advance(to count: Int, decodeTime: Duration) {
    note { state in
      state.report.progress.completed = count
      state.decodeTime = decodeTime
    }
  }

  func bodyCame() {
    note { state in
      state.report.timings.fetch = .now - state.began
      state.report.timings.decode = state.decodeTime
    }
  }

  /// The last word.
  func stop() -> RunReport { state.withLock { $0.report } }

  /// Puts what is new on the board.
  func show() {
    let report = state.withLock { state -> RunReport? in
      guard !state.isShown else { return nil }
      state.isShown = true
      return state.report
    }
    if let report { board.report(id, report) }
  }

  private func note(_ change: (inout State) -> Void) {
    state.withLock { state in
      change(&state)
      state.isShown = false
    }
  }
}
