internal import Jobs
internal import Synchronization

/// Collects what a load has to tell. Ten times a second the engine shows it to its members' owners, so that the newest
/// state is always shown, however little comes after it.
final class ProgressTracker: Sendable {
  private struct State {
    var news = LoadProgress()
    var began = ContinuousClock.now
    var isShown = true
    var preview: Preview?
  }

  private let state = Mutex(State())

  /// A request is about to be sent: nothing of an earlier one counts but its number.
  func requestBegins() {
    note { state in
      state.began = .now
      state.news.progress = Progress()
      state.news.previews = 0
      state.preview = nil
      state.news.requests += 1
    }
  }

  /// No request was sent after all.
  func requestWasRefused() { note { $0.news.requests -= 1 } }

  func expect(total: Int) { note { $0.news.progress.total = total } }

  func responseCame(_ response: FetchedResponse) {
    note { state in
      if response.status != 206 { state.news.progress.total = response.contentLength }
      state.news.timings.dns = response.timings.dns
      state.news.timings.connect = response.timings.connect
      state.news.timings.tls = response.timings.tls
      state.news.timings.firstByte = response.timings.firstByte
    }
  }

  /// The response goes on where kept bytes end.
  func resumes(from count: Int, total: Int) {
    note { state in
      state.news.progress = Progress(completed: count, total: total, resumedFrom: count)
    }
  }

  func advance(to count: Int, decodeTime: Duration) {
    note { state in
      state.news.progress.completed = max(count, state.news.progress.completed)
      state.news.timings.decode = decodeTime
    }
  }

  func bodyCame() {
    note { state in
      let fetch = state.began.duration(to: .now)
      state.news.timings.fetch = fetch
      state.news.timings.body = state.news.timings.firstByte.map { max(.zero, fetch - $0) }
    }
  }

  /// There is a newer preview.
  func made(_ preview: Preview) {
    note { state in
      state.preview = preview
      state.news.previews += 1
    }
  }

  /// The newest one, for as long as the load lasts.
  var preview: Preview? { state.withLock { $0.preview } }

  var news: LoadProgress { state.withLock { $0.news } }

  /// Bytes so far.
  var received: Int { state.withLock { $0.news.progress.completed } }

  /// Whether so many bytes are all that were announced.
  func isWhole(with count: Int) -> Bool { state.withLock { $0.news.progress.total == count } }

  /// What is there to show, once.
  func takeUnshown() -> LoadProgress? {
    state.withLock { state in
      guard !state.isShown else { return nil }
      state.isShown = true
      return state.news
    }
  }

  private func note(_ change: (inout State) -> Void) {
    state.withLock { state in
      change(&state)
      state.isShown = false
    }
  }
}
