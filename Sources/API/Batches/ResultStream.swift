internal import HTTP
internal import Jobs
internal import Logging
internal import Synchronization

/// The results of a batch, line by line: a page of them is read when the client has room for it.
final class ResultStream: ContentStream {
  /// Lines that are looked at for one page, and bytes after which it takes no other line: a client that reads nothing
  /// holds one of them.
  private static let most = (lines: 250, bytes: 256 << 10)
  /// The shortest time between two looks whether the next job has ended, and the longest, while nothing of the batch
  /// changes.
  private static let waits = (least: Duration.milliseconds(200), most: Duration.seconds(5))

  /// What comes after a look.
  private enum Next {
    /// There is something to send, or nothing any more.
    case sent
    /// Another look.
    case again
    /// Another look once the batch has another revision; nil: soon.
    case later(beyond: Int?)
    /// Another look in a second.
    case afterFailure
  }

  private struct State {
    var query: ResultQuery
    /// Lines that are looked at next: about as many as the last page had, where those were long.
    var lines = ResultStream.most.lines
    var ready: [UInt8] = []
    var isReading = false
    /// What comes after that; nil: another page.
    var end: StreamPiece?
    var reading: Task<Void, Never>?
    var wake: (@Sendable () -> Void)?
  }

  private let state: Mutex<State>
  /// Up to where it goes where it doesn't follow.
  private let last: Int
  private let batch: BatchID
  private let caller: Caller
  private let service: any BatchService
  private let client: RateLimiter.Client
  private let turns: ClientTurns
  private let log: Logger

  /// - Parameter turns: one of the client's is taken while a page is made.
  init(
    _ query: ResultQuery, of batch: Batch, for caller: Caller, _ client: RateLimiter.Client,
    _ service: any BatchService, turns: ClientTurns, log: Logger
  ) {
    state = Mutex(State(query: query))
    (last, self.batch, self.caller, self.client) = (batch.received, batch.id, caller, client)
    (self.service, self.turns, self.log) = (service, turns, log)
  }

  deinit { state.withLock { $0.reading }?.cancel() }

  func attach(_ wake: @escaping @Sendable () -> Void) { state.withLock { $0.wake = wake } }

  var keepAlive: KeepAlive? { nil }
  /// Nothing but its end tells a client that it has them all.
  var endsAnywhere: Bool { false }

  func next() -> StreamPiece {
    let (piece, reads) = state.withLock { state -> (StreamPiece, Bool) in
      if !state.ready.isEmpty {
        defer { state.ready = [] }
        return (.bytes(state.ready), false)
      }
      if let end = state.end { return (end, false) }
      defer { state.isReading = true }
      return (.nothingYet, !state.isReading)
    }
    if reads {
      let reading = Task { [weak self] in await Self.read(for: { self }) }
      state.withLock { $0.reading = reading }
    }
    return piece
  }

  /// Reads until there is something to send. Whoever lets go of the stream ends that.
  private static func read(for stream: () -> ResultStream?) async {
    guard let (service, batch, caller, client, turns) = stream()?.subject else { return }
    // The stream is held while it looks, and let go of while it waits, for its turn too.
    while let next = await turns.take(for: client, { await stream()?.look() }) {
      switch next {
      case .sent: return
      case .again: break
      case .afterFailure: try? await Task.sleep(for: .seconds(1))
      case .later(let revision):
        try? await Task.sleep(for: waits.least)
        guard let revision else { break }
        _ = try? await service.wait(batch, for: caller, beyond: revision, atMost: waits.most)
      }
    }
  }

  private var subject: (any BatchService, BatchID, Caller, RateLimiter.Client, ClientTurns) {
    (service, batch, caller, client, turns)
  }

  private func look() async -> Next {
    do throws(JobsError) { return try await readPage() } catch {
      if error == .unknownBatch {
        note([], end: .failed)
        return .sent
      }
      log.error("results can't be read", metadata: ["error": "\(error)"])
      return .afterFailure
    }
  }

  private func readPage() async throws(JobsError) -> Next {
    var (query, lines) = state.withLock { ($0.query, $0.lines) }
    query.through = query.after + lines
    if !query.isInOrder { query.through = min(query.through, last) }
    // Looked at before its lines: what comes in between is left for later.
    let batch = query.isInOrder ? try await service.batch(batch, for: caller) : nil
    let results = try await service.results(query)
    let (bytes, through) = Self.page(of: results)
    let isWhole = through == results.through
    let reachesEnd =
      batch.map { $0.state.isOver && !$0.isCancelling && through >= $0.received }
      ?? (through >= last)
    let isLast = isWhole && reachesEnd
    let isFurther = through > query.after
    lines = isWhole ? min(Self.most.lines, 2 * lines) : max(1, through - query.after)
    let (after, next) = (max(through, query.after), lines)
    state.withLock { ($0.query.after, $0.lines) = (after, next) }
    if bytes.isEmpty, !isLast {
      // That none is left to be cancelled is no change of its revision.
      let revision = batch.flatMap { $0.isCancelling ? nil : $0.revision }
      return isFurther ? .again : .later(beyond: revision)
    }
    note(bytes, end: isLast ? .end : nil)
    return .sent
  }

  /// Lines as they are sent, and up to where that is all there is to tell.
  private static func page(of results: BatchResults) -> (bytes: [UInt8], through: Int) {
    var bytes: [UInt8] = []
    for line in results.lines {
      guard bytes.count < most.bytes else { return (bytes, line.number - 1) }
      var writer = JSONWriter(capacity: 1024)
      BatchDocument.write(line, to: &writer)
      bytes += writer.bytes
      bytes.append(0x0A)
    }
    return (bytes, results.through)
  }

  private func note(_ bytes: [UInt8], end: StreamPiece?) {
    let wake = state.withLock { state in
      (state.ready, state.end, state.isReading) = (bytes, end, false)
      return state.wake
    }
    wake?()
  }
}
