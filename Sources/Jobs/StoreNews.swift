internal import Synchronization

/// What the instances that share a store tell each other. It may be late or lost: then it costs time and nothing else.
public protocol StoreNews: Sendable {
  /// Whether this process has the store for itself: what it knows of a job is then the newest that there is.
  var isExclusive: Bool { get }

  /// What the others do, as they do it, until the instance retires. One that has a store for itself hears nothing.
  func news(for instance: Instance) -> AsyncStream<News>

  /// Tells the others. Returns at once: it waits for nobody, and where nobody else is there it costs nothing.
  func tell(_ news: News, from instance: Instance)
}

/// What another instance did.
public enum News: Sendable, Equatable {
  /// Jobs were queued: there may be one to claim.
  case queued
  /// A job was changed, cancelled or has ended: the store has it as it is now.
  case changed(JobID)
  /// Jobs were forgotten.
  case removed([JobID])
  /// A job was purged: the bytes of a broken-off transfer under that key are to be forgotten too.
  case purged(JobID, partial: Fingerprint?)
  /// Somebody there follows jobs that are loaded elsewhere: who loads them tells of their progress from now on.
  case followed([JobID])
  /// How far a job has come that is loaded there, and the version that clients there see.
  case progress(JobID, version: Int, ProgressReport)
  /// Something of the cache was dropped by an operator.
  case cacheDropped
  /// An operator said that the network is constrained, or no longer is.
  case constrained(Bool)
  /// Some news were lost: whatever is known of jobs that others work on may be old.
  case lost
}

/// Passes news on between instances of one process.
package final class NewsExchange: Sendable {
  private let listeners = Mutex<[Instance: AsyncStream<News>.Continuation]>([:])

  /// Nobody listens yet.
  package init() {}

  /// What the others tell from now on.
  package func news(for instance: Instance) -> AsyncStream<News> {
    let (stream, continuation) = AsyncStream.makeStream(of: News.self)
    listeners.withLock { $0.updateValue(continuation, forKey: instance) }?.finish()
    return stream
  }

  /// Tells all others.
  package func tell(_ news: News, from instance: Instance) {
    listeners.withLock { listeners in
      for (other, continuation) in listeners where other != instance { continuation.yield(news) }
    }
  }

  /// Ends what an instance hears.
  package func end(_ instance: Instance) {
    listeners.withLock { $0.removeValue(forKey: instance) }?.finish()
  }
}
