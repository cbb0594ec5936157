internal import HTTP
internal import Jobs
internal import Synchronization

/// What becomes of a batch, as server-sent events: at most two a second, and the last one always.
final class BatchEventStream: ContentStream {
  private static let interval = Duration.milliseconds(500)

  private struct State {
    /// The revision that the client has; nil: none yet.
    var seen: Int?
    var ready: [UInt8] = []
    var isReading = false
    var hasEnded = false
    var wake: (@Sendable () -> Void)?
  }

  private let state: Mutex<State>
  private let batch: BatchID
  private let caller: Caller
  private let service: any JobService

  init(_ batch: BatchID, seen: Int?, for caller: Caller, _ service: any JobService) {
    state = Mutex(State(seen: seen))
    (self.batch, self.caller, self.service) = (batch, caller, service)
  }

  func attach(_ wake: @escaping @Sendable () -> Void) { state.withLock { $0.wake = wake } }

  /// A comment, so that the line is used every 15 s.
  var keepAlive: KeepAlive? { KeepAlive(bytes: Array(":\n\n".utf8), interval: .seconds(14)) }

  func next() -> StreamPiece {
    let (piece, isFirst, reads) = state.withLock { state -> (StreamPiece, Bool, Bool) in
      if !state.ready.isEmpty {
        defer { state.ready = [] }
        return (.bytes(state.ready), false, false)
      }
      if state.hasEnded { return (.end, false, false) }
      defer { state.isReading = true }
      return (.nothingYet, state.seen == nil, !state.isReading)
    }
    if reads { Task { [weak self] in await Self.look(for: { self }, isFirst: isFirst) } }
    return piece
  }

  /// Looks until there is something to tell. Whoever lets go of the stream ends that.
  private static func look(for stream: () -> BatchEventStream?, isFirst: Bool) async {
    if !isFirst { try? await Task.sleep(for: interval) }
    while let this = stream() {
      if await this.lookOnce() { return }
      try? await Task.sleep(for: interval)
    }
  }

  /// - Returns: whether there is something to tell, or it has ended.
  private func lookOnce() async -> Bool {
    let batch: Batch
    do throws(JobsError) { batch = try await service.batch(self.batch, for: caller) } catch {
      if error == .unknownBatch { note([], seen: nil, hasEnded: true) }
      return error == .unknownBatch
    }
    let isOver = batch.state.isOver && !batch.isCancelling
    let isNew = state.withLock { $0.seen != batch.revision }
    guard isNew || isOver else { return false }
    var bytes: [UInt8] = []
    if isNew {
      bytes += "event: batch\nid: \(batch.revision)\ndata: ".utf8
      bytes += BatchDocument.encode(batch, at: service.now())
      bytes += "\n\n".utf8
    }
    note(bytes, seen: batch.revision, hasEnded: isOver)
    return true
  }

  private func note(_ bytes: [UInt8], seen: Int?, hasEnded: Bool) {
    let wake = state.withLock { state in
      (state.ready, state.seen, state.hasEnded, state.isReading) = (bytes, seen, hasEnded, false)
      return state.wake
    }
    wake?()
  }
}
