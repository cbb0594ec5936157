internal import Jobs
internal import Synchronization

/// Batches that somebody waits for or follows. However many do, each batch is looked up by one of them for all, for as long
/// as anybody wants to know.
final class BatchWatches: Sendable {
  private typealias Listener = AsyncStream<Batch?>.Continuation

  private struct Watch {
    var listeners: [Int: Listener] = [:]
    /// As it was when it was last looked up.
    var last: Batch?
    var looking: Task<Void, Never>?
  }

  private struct State {
    var watches: [BatchID: Watch] = [:]
    var lastNumber = 0
    var isClosed = false
  }

  private let store: any BatchStore
  private let state = Mutex(State())
  /// Between two looks.
  private static let interval = Duration.milliseconds(200)

  init(store: any BatchStore) { self.store = store }

  /// The batch as it is, and as it becomes: of what a listener has not taken only the newest. Nil, and then the end, once there
  /// is none.
  func follow(_ id: BatchID) -> AsyncStream<Batch?> {
    AsyncStream(bufferingPolicy: .bufferingNewest(1)) { listener in
      let number: Int? = state.withLock { state in
        guard !state.isClosed else { return nil }
        state.lastNumber += 1
        var watch = state.watches[id] ?? Watch()
        watch.listeners[state.lastNumber] = listener
        if let last = watch.last { listener.yield(last) }
        if watch.looking == nil {
          watch.looking = Task { [weak self] in await Self.look(id, for: { self }) }
        }
        state.watches[id] = watch
        return state.lastNumber
      }
      guard let number else { return listener.finish() }
      listener.onTermination = { [weak self] _ in self?.leave(id, number) }
    }
  }

  /// Nobody is told of anything any more.
  func close() {
    let watches = state.withLock { state in
      state.isClosed = true
      defer { state.watches = [:] }
      return Array(state.watches.values)
    }
    for watch in watches {
      watch.looking?.cancel()
      for listener in watch.listeners.values { listener.finish() }
    }
  }

  private func leave(_ id: BatchID, _ number: Int) {
    let looking = state.withLock { state -> Task<Void, Never>? in
      state.watches[id]?.listeners[number] = nil
      guard let watch = state.watches[id], watch.listeners.isEmpty else { return nil }
      state.watches[id] = nil
      return watch.looking
    }
    looking?.cancel()
  }

  private static func look(_ id: BatchID, for watches: () -> BatchWatches?) async {
    while !Task.isCancelled, let this = watches() {
      // One that can't be looked up now is looked up again.
      do throws(StoreError) {
        let batch = try await this.store.batch(id)
        guard !Task.isCancelled else { return }
        this.tell(id, batch)
        if batch == nil { return }
      } catch {}
      try? await Task.sleep(for: interval)
    }
  }

  private func tell(_ id: BatchID, _ batch: Batch?) {
    let listeners = state.withLock { state -> [Listener] in
      guard let watch = state.watches[id] else { return [] }
      if batch == nil {
        state.watches[id] = nil
      } else {
        guard watch.last?.revision != batch?.revision else { return [] }
        state.watches[id]?.last = batch
      }
      return Array(watch.listeners.values)
    }
    for listener in listeners {
      listener.yield(batch)
      if batch == nil { listener.finish() }
    }
  }
}
