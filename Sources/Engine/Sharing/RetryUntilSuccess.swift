internal import Jobs
internal import Logging

/// Repeats a store operation until it succeeds, after 0.1 s at first and every 10 s in the end.
/// - Parameter failure: the log line of each failure.
/// - Returns: nil if the task was cancelled first.
func retryUntilSuccess<Value>(
  _ failure: Logger.Message, _ log: Logger, _ body: () async throws(StoreError) -> Value
) async -> Value? {
  var pause = Duration.milliseconds(100)
  while !Task.isCancelled {
    do throws(StoreError) { return try await body() } catch {
      log.error(failure, metadata: ["error": "\(error)"])
    }
    try? await Task.sleep(for: pause)
    pause = min(pause * 2, .seconds(10))
  }
  return nil
}
