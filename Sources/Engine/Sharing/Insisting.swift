internal import Jobs
internal import Logging

/// Does what a store may fail to do again until it is done: soon at first, and every ten seconds in the end.
/// - Parameter failure: what the log says each time.
/// - Returns: nil where the task was cancelled before.
func insist<Value>(
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
