internal import HTTP
internal import Jobs
internal import Synchronization

/// The changes of a batch as server-sent events: at most two per second; the final state is always sent.
final class BatchEventStream: ContentStream {
  private static let interval = Duration.milliseconds(500)

  private struct State {
    /// The revision that the client has; nil: none.
    var seen: Int?
    /// The newest event that is not sent yet.
    var ready: [UInt8] = []
    var hasBegun = false
    var hasEnded = false
    var following: Task<Void, Never>?
    var wake: (@Sendable () -> Void)?
  }

  private let state: Mutex<State>
  private let batch: BatchID
  private let service: any JobService

  init(_ batch: BatchID, seen: Int?, _ service: any JobService) {
    state = Mutex(State(seen: seen))
    (self.batch, self.service) = (batch, service)
  }

  deinit { state.withLock { $0.following }?.cancel() }

  func attach(_ wake: @escaping @Sendable () -> Void) { state.withLock { $0.wake = wake } }

  var keepAlive: KeepAlive? { .comment }
  var mayEndAnywhere: Bool { true }

  func next() -> StreamPiece {
    let (piece, begins) = state.withLock { state -> (StreamPiece, Bool) in
      if !state.ready.isEmpty {
        defer { state.ready = [] }
        return (.bytes(state.ready), false)
      }
      if state.hasEnded { return (.end, false) }
      defer { state.hasBegun = true }
      return (.nothingYet, !state.hasBegun)
    }
    if begins { startFollowing() }
    return piece
  }

  private func startFollowing() {
    let following = Task { [weak self, changes = service.follow(batch)] in
      for await batch in changes {
        guard self?.publish(batch) == true else { return }
        // If the batch changes during this pause, the stream of changes keeps the newest state.
        try? await Task.sleep(for: Self.interval)
      }
      self?.update([], seen: nil, hasEnded: true)
    }
    state.withLock { $0.following = following }
  }

  /// - Returns: whether more events may follow.
  private func publish(_ batch: Batch?) -> Bool {
    guard let batch else {
      update([], seen: nil, hasEnded: true)
      return false
    }
    let isOver = batch.state.isOver && !batch.isCancelling
    let isNew = state.withLock { $0.seen != batch.revision }
    guard isNew || isOver else { return true }
    var bytes: [UInt8] = []
    if isNew {
      bytes += "event: batch\nid: \(batch.revision)\ndata: ".utf8
      bytes += BatchDocument.encode(batch, at: service.now())
      bytes += "\n\n".utf8
    }
    update(bytes, seen: batch.revision, hasEnded: isOver)
    return !isOver
  }

  /// - Parameter bytes: if empty, the event that is ready stays.
  private func update(_ bytes: [UInt8], seen: Int?, hasEnded: Bool) {
    let wake = state.withLock { state in
      if !bytes.isEmpty { state.ready = bytes }
      (state.seen, state.hasEnded) = (seen, hasEnded)
      return state.wake
    }
    wake?()
  }
}
