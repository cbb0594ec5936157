internal import Jobs
internal import Synchronization

/// Watches batches for clients that wait for or follow them. One task per batch reads the store for all its listeners,
/// for as long as there is one.
final class BatchWatches: Sendable {
  private typealias Listener = AsyncStream<Batch?>.Continuation

  private struct Watch {
    var listeners: [Int: Listener] = [:]
    /// The batch as it was last read.
    var last: Batch?
    var polling: Task<Void, Never>?
  }

  private struct State {
    var watches: [BatchID: Watch] = [:]
    var lastNumber = 0
    var isClosed = false
  }

  private let store: any BatchStore
  private let state = Mutex(State())
  /// Time between two reads of the store.
  private static let interval = Duration.milliseconds(200)

  init(store: any BatchStore) { self.store = store }

  /// Returns a stream of the batch now and after each change. A slow listener gets only the newest state. Yields nil
  /// and ends once the batch is deleted.
  func follow(_ id: BatchID) -> AsyncStream<Batch?> {
    AsyncStream(bufferingPolicy: .bufferingNewest(1)) { listener in
      let number: Int? = state.withLock { state in
        guard !state.isClosed else { return nil }
        state.lastNumber += 1
        var watch = state.watches[id] ?? Watch()
        watch.listeners[state.lastNumber] = listener
        if let last = watch.last { listener.yield(last) }
        if watch.polling == nil {
          watch.polling = Task { [weak self] in await Self.poll(id, for: { self }) }
        }
        state.watches[id] = watch
        return state.lastNumber
      }
      guard let number else { return listener.finish() }
      listener.onTermination = { [weak self] _ in self?.removeListener(id, number) }
    }
  }

  /// Ends all streams.
  func close() {
    let watches = state.withLock { state in
      state.isClosed = true
      defer { state.watches = [:] }
      return Array(state.watches.values)
    }
    for watch in watches {
      watch.polling?.cancel()
      for listener in watch.listeners.values { listener.finish() }
    }
  }

  private func removeListener(_ id: BatchID, _ number: Int) {
    let looking = state.withLock { state -> Task<Void, Never>? in
      state.watches[id]?.listeners[number] = nil
      guard let watch = state.watches[id], watch.listeners.isEmpty else { return nil }
      state.watches[id] = nil
      return watch.polling
    }
    looking?.cancel()
  }

  private static func poll(_ id: BatchID, for watches: () -> BatchWatches?) async {
    while !Task.isCancelled, let this = watches() {
      // If a read fails, the next one follows after the interval.
      do throws(StoreError) {
        let batch = try await this.store.batch(id)
        guard !Task.isCancelled else { return }
        this.deliver(id, batch)
        if batch == nil { return }
      } catch {}
      try? await Task.sleep(for: interval)
    }
  }

  private func deliver(_ id: BatchID, _ batch: Batch?) {
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
