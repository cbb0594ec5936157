internal import HTTP
internal import Jobs
internal import Logging
internal import Synchronization
internal import Waiting

/// Streams the results of a batch line by line. A page is read from the store when the client can receive more.
final class ResultStream: ContentStream {
  /// The maximum lines that are read for one page, and the bytes after which a page gets no more lines. A client that
  /// reads nothing keeps one page in memory.
  private static let most = (lines: 250, bytes: 256 << 10)
  /// The time between two reads while the next job has not finished. The least one always applies; the longest if the
  /// batch does not change.
  private static let waits = (least: Duration.milliseconds(200), most: Duration.seconds(5))

  /// What to do after a read.
  private enum Next {
    /// Stop: something is ready to send, or the stream has ended.
    case sent
    /// Read again at once.
    case again
    /// Read again when the batch has another revision; nil: soon.
    case later(beyond: Int?)
    /// Read again in one second.
    case afterFailure
  }

  private struct State {
    var query: ResultQuery
    /// The number of lines to read next. If lines are long, about as many as the last page had.
    var lines = ResultStream.most.lines
    var ready: [UInt8] = []
    var isReading = false
    /// The piece after `ready`; nil: another page.
    var end: StreamPiece?
    var reading: Task<Void, Never>?
    var wake: (@Sendable () -> Void)?
  }

  private let state: Mutex<State>
  /// The last line of the stream, if it does not follow the batch.
  private let last: Int
  private let batch: BatchID
  private let caller: Caller
  private let service: any BatchService
  private let client: RateLimiter.Client
  private let turns: FairSemaphore<RateLimiter.Client>
  private let log: Logger

  /// - Parameter turns: the queue in which clients wait to make a page. It limits how many pages are made at once.
  init(
    _ query: ResultQuery, of batch: Batch, for caller: Caller, _ client: RateLimiter.Client,
    _ service: any BatchService, turns: FairSemaphore<RateLimiter.Client>, log: Logger
  ) {
    state = Mutex(State(query: query))
    (last, self.batch, self.caller, self.client) = (batch.received, batch.id, caller, client)
    (self.service, self.turns, self.log) = (service, turns, log)
  }

  deinit { state.withLock { $0.reading }?.cancel() }

  func attach(_ wake: @escaping @Sendable () -> Void) { state.withLock { $0.wake = wake } }

  var keepAlive: KeepAlive? { nil }
  /// The results have no marker for their end, so a stream that ends early must fail.
  var mayEndAnywhere: Bool { false }

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

  /// Reads until something is ready. Ends when the stream is deallocated.
  private static func read(for stream: () -> ResultStream?) async {
    guard let (service, batch, caller, client, turns) = stream()?.subject else { return }
    // The stream is retained only during a read, not while this task waits.
    while let next = await turns.withPermit(for: client, { await stream()?.tryReadPage() }) {
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

  private var subject:
    (any BatchService, BatchID, Caller, RateLimiter.Client, FairSemaphore<RateLimiter.Client>)
  { (service, batch, caller, client, turns) }

  private func tryReadPage() async -> Next {
    do throws(JobsError) { return try await readPage() } catch {
      if error == .unknownBatch {
        update([], end: .failed)
        return .sent
      }
      log.error("failed to read results of a batch", metadata: ["error": "\(error)"])
      return .afterFailure
    }
  }

  private func readPage() async throws(JobsError) -> Next {
    var (query, lines) = state.withLock { ($0.query, $0.lines) }
    query.through = query.after + lines
    if !query.isInOrder { query.through = min(query.through, last) }
    // Read before the results, so that jobs that finish in between are part of a later page.
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
      // When the last job is cancelled, the revision does not change.
      let revision = batch.flatMap { $0.isCancelling ? nil : $0.revision }
      return isFurther ? .again : .later(beyond: revision)
    }
    update(bytes, end: isLast ? .end : nil)
    return .sent
  }

  /// Returns the lines to send, and the number of the last line that they cover.
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

  private func update(_ bytes: [UInt8], end: StreamPiece?) {
    let wake = state.withLock { state in
      (state.ready, state.end, state.isReading) = (bytes, end, false)
      return state.wake
    }
    wake?()
  }
}
