internal import Jobs
internal import Synchronization

/// Verifications in progress. Concurrent callers share one result, so that an image is read once.
final class Verifications: Sendable {
  private struct Key: Hashable {
    var digest: ImageDigest
    var bytes: Int?
  }

  private typealias Outcome = Result<Bool, StoreError>

  private let waiting = Mutex<[Key: [CheckedContinuation<Outcome?, Never>]]>([:])

  /// The number of callers waiting for a shared result.
  var waiters: Int { waiting.withLock { $0.values.reduce(0) { $0 + $1.count } } }

  /// - Parameter verify: called by the first caller.
  func share(
    _ digest: ImageDigest, _ bytes: Int?, _ verify: () async throws(StoreError) -> Bool
  ) async throws(StoreError) -> Bool {
    let key = Key(digest: digest, bytes: bytes)
    if let outcome = await joinRunning(key) { return try outcome.get() }
    let outcome: Outcome
    do throws(StoreError) { outcome = .success(try await verify()) } catch {
      outcome = .failure(error)
    }
    let others = waiting.withLock { $0.removeValue(forKey: key) } ?? []
    for other in others { other.resume(returning: outcome) }
    return try outcome.get()
  }

  /// - Returns: the shared result; `nil` if the caller is the first and must verify.
  private func joinRunning(_ key: Key) async -> Outcome? {
    await withCheckedContinuation { continuation in
      let isFirst = waiting.withLock { waiting in
        guard waiting[key] != nil else {
          waiting[key] = []
          return true
        }
        waiting[key]?.append(continuation)
        return false
      }
      if isFirst { continuation.resume(returning: nil) }
    }
  }
}
