internal import Synchronization
internal import Waiting

/// Runs a slow operation once at a time. Callers that arrive while it runs wait for its end, for at most `limit`.
final class SharedOperation: Sendable {
  private let underWay = Mutex(Task<Void, Never>?.none)

  func run(atMost limit: Duration, _ look: @escaping @Sendable () async -> Void) async {
    let task = underWay.withLock { task in
      if let task { return task }
      let new = Task {
        await look()
        underWay.withLock { $0 = nil }
      }
      task = new
      return new
    }
    let end = OneShot<Void>()
    Task {
      await task.value
      end.fulfil(())
    }
    _ = await end.value(before: .now + limit)
  }
}
