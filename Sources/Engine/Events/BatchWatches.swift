internal import Jobs
internal import Synchronization

/// Watches batches for clients that wait for or follow them. One task per batch reads the store for all its listeners,
/// for as long as there is one.
final class BatchWatches: Sendable {
  private typealias Listener = AsyncStream<Batch?>.Continuation

  private struct Watch {
    var listeners: [Int: Listener] = [:]
    /// Listeners for which no read has started yet.
    var new: Set<Int> = []
    /// The batch as it was last read.
    var last: Batch?
    var polling: Task<Void, Never>?
    /// The pause between two reads. A new listener ends it.
    var pause: Task<Void, Never>?
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
        watch.new.insert(state.lastNumber)
        if watch.polling == nil {
          watch.polling = Task { [weak self] in await Self.poll(id, for: { self }) }
        }
        watch.pause?.cancel()
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
      state.watches[id]?.new.remove(number)
      guard let watch = state.watches[id], watch.listeners.isEmpty else { return nil }
      state.watches[id] = nil
      return watch.polling
    }
    looking?.cancel()
  }

  private static func poll(_ id: BatchID, for watches: () -> BatchWatches?) async {
    while !Task.isCancelled, let this = watches() {
      let new = this.takeNewListeners(id)
      // If a read fails, the next one follows after the interval.
      do throws(StoreError) {
        let batch = try await this.store.batch(id)
        if Task.isCancelled { return this.returnNewListeners(new, id) }
        this.deliver(id, batch, new: new)
        if batch == nil { return }
        await this.pauseUnlessNew(id)
      } catch {
        this.returnNewListeners(new, id)
        try? await Task.sleep(for: interval)
      }
    }
  }

  private func takeNewListeners(_ id: BatchID) -> Set<Int> {
    state.withLock { state in
      defer { state.watches[id]?.new = [] }
      return state.watches[id]?.new ?? []
    }
  }

  private func returnNewListeners(_ new: Set<Int>, _ id: BatchID) {
    state.withLock { state in
      guard let watch = state.watches[id] else { return }
      state.watches[id]?.new.formUnion(new.intersection(watch.listeners.keys))
    }
  }

  private func pauseUnlessNew(_ id: BatchID) async {
    let pause = state.withLock { state -> Task<Void, Never>? in
      guard state.watches[id]?.new.isEmpty == true else { return nil }
      let pause = Task<Void, Never> { try? await Task.sleep(for: Self.interval) }
      state.watches[id]?.pause = pause
      return pause
    }
    await pause?.value
  }

  /// - Parameter new: listeners that were added before this read started.
  private func deliver(_ id: BatchID, _ batch: Batch?, new: Set<Int>) {
    let listeners = state.withLock { state -> [Listener] in
      guard let watch = state.watches[id] else { return [] }
      if batch == nil {
        state.watches[id] = nil
        return Array(watch.listeners.values)
      }
      let isChanged = watch.last?.revision != batch?.revision
      state.watches[id]?.last = batch
      // Listeners that were added during the read wait for the next one.
      return watch.listeners.filter { number, _ in
        new.contains(number) || isChanged && !watch.new.contains(number)
      }.map(\.value)
    }
    for listener in listeners {
      listener.yield(batch)
      if batch == nil { listener.finish() }
    }
  }
}
