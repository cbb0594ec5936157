internal import Jobs

/// Makes an upload's lines durable while the next ones are read: what has come when a transaction ends is the next one's,
/// so that the faster lines come, the more of them share one.
actor BatchWriter {
  /// So much waits for the store before the client is held back; bytes as ``NewLines/bytes`` counts them.
  static let most = (lines: 2_000, bytes: 512 << 10)
  /// What an upload has in memory at the most, about: up to twice those bytes wait, twice as many are being written, as
  /// jobs and as records, and the rest is for the line that is read.
  static let memory = 8 * most.bytes

  private let service: any BatchService
  private let caller: Caller
  private var batch: Batch
  /// Lines of the batch up to the last one that was written here.
  private(set) var received: Int
  private var pending: NewLines
  private var writing: Task<Void, Never>?
  private var failure: JobsError?
  private var held: CheckedContinuation<Void, Never>?

  init(_ service: any BatchService, _ batch: Batch, by caller: Caller) {
    (self.service, self.batch, self.caller) = (service, batch, caller)
    received = batch.received
    pending = NewLines(after: batch.received)
  }

  /// Takes lines, once there is room for them.
  func add(_ lines: NewLines) async throws(JobsError) {
    while isFull, failure == nil { await withCheckedContinuation { held = $0 } }
    if let failure { throw failure }
    pending.append(lines)
    if writing == nil, !pending.isEmpty { writing = Task { await write() } }
  }

  private var isFull: Bool {
    pending.count >= Self.most.lines || pending.bytes >= Self.most.bytes
  }

  /// - Returns: the batch once all lines are durable that were taken.
  func finish() async throws(JobsError) -> Batch {
    while let writing { await writing.value }
    if let failure { throw failure }
    return batch
  }

  private func write() async {
    while !pending.isEmpty, failure == nil {
      let lines = pending
      pending = NewLines(after: lines.offset + lines.count)
      letGo()
      do throws(JobsError) {
        batch = try await service.add(lines, to: batch, by: caller)
        received = lines.offset + lines.count
      } catch {
        failure = error
      }
    }
    writing = nil
    letGo()
  }

  private func letGo() {
    held?.resume()
    held = nil
  }
}
