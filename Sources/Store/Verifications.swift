internal import Jobs
internal import Synchronization

/// Verifications under way: whoever asks for one meanwhile is told its result, so that an image which many want at once
/// is read once.
final class Verifications: Sendable {
  private struct Key: Hashable {
    var digest: ImageDigest
    var bytes: Int?
  }

  private typealias Outcome = Result<Bool, StoreError>

  private let waiting = Mutex<[Key: [CheckedContinuation<Outcome?, Never>]]>([:])

  /// How many wait for another's result.
  var waiters: Int { waiting.withLock { $0.values.reduce(0) { $0 + $1.count } } }

  /// - Parameter verify: called by the first who asks.
  func share(
    _ digest: ImageDigest, _ bytes: Int?, _ verify: () async throws(StoreError) -> Bool
  ) async throws(StoreError) -> Bool {
    let key = Key(digest: digest, bytes: bytes)
    if let outcome = await underWay(key) { return try outcome.get() }
    let outcome: Outcome
    do throws(StoreError) { outcome = .success(try await verify()) } catch {
      outcome = .failure(error)
    }
    let others = waiting.withLock { $0.removeValue(forKey: key) } ?? []
    for other in others { other.resume(returning: outcome) }
    return try outcome.get()
  }

  /// - Returns: nil when none is: then the caller's is, from now on.
  private func underWay(_ key: Key) async -> Outcome? {
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
