internal import HTTP
internal import Jobs
internal import Logging
internal import Synchronization
internal import Waiting

/// The results of a batch, line by line: a page of them is read when the client has room for it.
final class ResultStream: ContentStream {
  /// Lines that are looked at for one page, and bytes after which it takes no other line: a client that reads nothing
  /// holds one of them.
  private static let most = (lines: 250, bytes: 256 << 10)
  /// How often it is looked whether the next job has ended.
  private static let patience = Duration.milliseconds(200)

  private struct State {
    var query: ResultQuery
    /// Lines that are looked at next: about as many as the last page had, where those were long.
    var lines = ResultStream.most.lines
    var ready: [UInt8] = []
    var isReading = false
    var hasEnded = false
    var wake: (@Sendable () -> Void)?
  }

  private let state: Mutex<State>
  /// Up to where it goes where it doesn't follow.
  private let last: Int
  private let batch: BatchID
  private let caller: Caller
  private let service: any BatchService
  private let turns: AsyncSemaphore
  private let log: Logger

  /// - Parameter turns: one is taken while a page is made.
  init(
    _ query: ResultQuery, of batch: Batch, for caller: Caller, _ service: any BatchService,
    turns: AsyncSemaphore, log: Logger
  ) {
    state = Mutex(State(query: query))
    (last, self.batch, self.caller) = (batch.received, batch.id, caller)
    (self.service, self.turns, self.log) = (service, turns, log)
  }

  func attach(_ wake: @escaping @Sendable () -> Void) { state.withLock { $0.wake = wake } }

  var keepAlive: KeepAlive? { nil }

  func next() -> StreamPiece {
    let (piece, reads) = state.withLock { state -> (StreamPiece, Bool) in
      if !state.ready.isEmpty {
        defer { state.ready = [] }
        return (.bytes(state.ready), false)
      }
      if state.hasEnded { return (.end, false) }
      defer { state.isReading = true }
      return (.nothingYet, !state.isReading)
    }
    if reads { Task { [weak self] in await Self.read(for: { self }) } }
    return piece
  }

  /// Reads until there is something to send. Whoever lets go of the stream ends that.
  private static func read(for stream: () -> ResultStream?) async {
    while let this = stream() {
      let pause: Duration?
      do throws(JobsError) { pause = try await this.readPage() } catch {
        if error == .unknownBatch {
          this.note([], hasEnded: true)
          return
        }
        this.log.error("results can't be read", metadata: ["error": "\(error)"])
        pause = .seconds(1)
      }
      guard let pause else { return }
      if pause > .zero { try? await Task.sleep(for: pause) }
    }
  }

  /// - Returns: how long to wait before the next look; nil: there is something to send.
  private func readPage() async throws(JobsError) -> Duration? {
    let turn = await turns.acquire()
    defer { withExtendedLifetime(turn) {} }
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
      ?? (query.through >= last)
    let isLast = isWhole && reachesEnd
    let isFurther = through > query.after
    lines = isWhole ? min(Self.most.lines, 2 * lines) : max(1, through - query.after)
    let (after, next) = (max(through, query.after), lines)
    state.withLock { ($0.query.after, $0.lines) = (after, next) }
    if bytes.isEmpty, !isLast { return isFurther ? .zero : Self.patience }
    note(bytes, hasEnded: isLast)
    return nil
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

  private func note(_ bytes: [UInt8], hasEnded: Bool) {
    let wake = state.withLock { state in
      (state.ready, state.hasEnded, state.isReading) = (bytes, hasEnded, false)
      return state.wake
    }
    wake?()
  }
}
