internal import Jobs

/// Stores an upload's lines while the next ones are read. Lines that arrive during a transaction are written together
/// in the next one. So the faster lines arrive, the more of them share a transaction.
actor BatchWriter {
  /// The maximum that waits for the store. Above it, the client has to wait. Bytes are counted as in
  /// ``NewLines/bytes``.
  static let most = (lines: 2_000, bytes: 512 << 10)
  /// The approximate memory of one upload in bytes. Up to twice `most.bytes` wait, twice that are being written (as
  /// jobs and as records), and the rest is for the line that is being read.
  static let memory = 8 * most.bytes

  private let service: any BatchService
  private let caller: Caller
  private var batch: Batch
  /// The number of the last line that this writer has stored.
  private(set) var received: Int
  private var pending: NewLines
  private var writing: Task<Void, Never>?
  private var failure: JobsError?
  private var waiter: CheckedContinuation<Void, Never>?

  init(_ service: any BatchService, _ batch: Batch, by caller: Caller) {
    (self.service, self.batch, self.caller) = (service, batch, caller)
    received = batch.received
    pending = NewLines(after: batch.received)
  }

  /// Adds lines. Waits while the maximum is reached.
  func add(_ lines: NewLines) async throws(JobsError) {
    while isFull, failure == nil { await withCheckedContinuation { waiter = $0 } }
    if let failure { throw failure }
    pending.append(lines)
    if writing == nil, !pending.isEmpty { writing = Task { await write() } }
  }

  private var isFull: Bool {
    pending.count >= Self.most.lines || pending.bytes >= Self.most.bytes
  }

  /// - Returns: the batch, when all added lines are stored.
  func finish() async throws(JobsError) -> Batch {
    while let writing { await writing.value }
    if let failure { throw failure }
    return batch
  }

  private func write() async {
    while !pending.isEmpty, failure == nil {
      let lines = pending
      pending = NewLines(after: lines.offset + lines.count)
      resumeWaiter()
      do throws(JobsError) {
        batch = try await service.add(lines, to: batch, by: caller)
        received = lines.offset + lines.count
      } catch {
        failure = error
      }
    }
    writing = nil
    resumeWaiter()
  }

  private func resumeWaiter() {
    waiter?.resume()
    waiter = nil
  }
}
