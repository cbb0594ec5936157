internal import Jobs

extension FetchRequest {
  /// Waits until the request may go to another origin. The wait counts toward the fetch's timeout.
  ///
  /// - Throws: The errors that ``admission`` throws, and `.timeout` at the deadline.
  func awaitAdmission(
    to origin: String, by deadline: ContinuousClock.Instant
  ) async throws(FetchError) {
    guard let admission else { return }
    let timeout = timeout
    let result = await withTaskGroup(of: Result<Void, FetchError>.self) { group in
      group.addTask {
        do throws(FetchError) { return .success(try await admission(origin)) } catch {
          return .failure(error)
        }
      }
      group.addTask {
        await Self.sleep(until: deadline)
        return .failure(Task.isCancelled ? .cancelled : .timeout(seconds: timeout.roundedSeconds))
      }
      let first = await group.next() ?? .failure(.cancelled)
      group.cancelAll()
      return first
    }
    try result.get()
  }

  /// Sleeps until the deadline or a cancellation, at most an hour at a time: the system's timers overflow on
  /// very distant deadlines.
  private static func sleep(until deadline: ContinuousClock.Instant) async {
    while !Task.isCancelled {
      let left = ContinuousClock.now.duration(to: deadline)
      guard left > .zero else { return }
      try? await Task.sleep(for: min(left, .seconds(3_600)))
    }
  }
}
