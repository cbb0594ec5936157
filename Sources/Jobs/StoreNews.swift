internal import Synchronization

/// What the instances that share a store tell each other. It may be late or lost: then it costs time and nothing else.
public protocol StoreNews: Sendable {
  /// Whether this process has the store for itself: what it knows of a job is then the newest that there is.
  var isExclusive: Bool { get }

  /// What the others do, as they do it, until the instance retires. One that has a store for itself hears nothing.
  func news(for instance: Instance) -> AsyncStream<News>

  /// Tells the others. Returns at once: it waits for nobody, and where nobody else is there it costs nothing.
  func tell(_ news: News, from instance: Instance)

  /// Whether an operator said that the network is constrained, or not, since the first of the instances that are there
  /// now came; nil where nobody did.
  func isConstrained() async throws(StoreError) -> Bool?

  /// Notes it for instances that come later.
  func setConstrained(_ isConstrained: Bool) async throws(StoreError)
}

/// For a store that one instance has for itself: nobody comes later.
extension StoreNews {
  /// Nobody did.
  public func isConstrained() async throws(StoreError) -> Bool? { nil }

  /// There is nobody to note it for.
  public func setConstrained(_ isConstrained: Bool) async throws(StoreError) {}
}

/// What another instance did.
public enum News: Sendable, Equatable {
  /// Of how many jobs or images one tells at the most, to be told as it is.
  package static let mostIDs = 200

  /// Jobs were queued: there may be one to claim.
  case queued
  /// Queued jobs ask this, which is being loaded there or elsewhere: who loads it may bring them in.
  case awaited(Fingerprint)
  /// An origin is out of reach, and is not asked for so long.
  case originPaused(String, Duration)
  /// A job was changed, cancelled or has ended: the store has it as it is now.
  case changed(JobID)
  /// Jobs were forgotten.
  case removed([JobID])
  /// A job was purged: the bytes of a broken-off transfer under that key are to be forgotten too.
  case purged(JobID, partial: Fingerprint?)
  /// A batch was purged: nobody is shown a job of it, however long their removal takes.
  case batchPurged(BatchID)
  /// Images were removed, so that nobody needs a copy any more.
  case imagesGone([ImageDigest])
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
  /// A store that may be cut off from the others says so while it isn't: all that they had told by then came before this.
  case heard(until: ContinuousClock.Instant)
}

/// Passes news on between instances of one process.
///
/// Who does not keep up loses the oldest, and is told that some were lost.
package final class NewsExchange: Sendable {
  private struct Listener {
    let stream: AsyncStream<News>.Continuation
    /// News that it may yet lose before it is told so again.
    var silence = 0
  }

  private let listeners = Mutex<[Instance: Listener]>([:])
  private let capacity: Int

  /// Nobody listens yet.
  /// - Parameter capacity: news that wait for one listener, at the most.
  package init(capacity: Int = 16_384) { self.capacity = max(2, capacity) }

  /// What the others tell from now on.
  package func news(for instance: Instance) -> AsyncStream<News> {
    let (stream, continuation) = AsyncStream.makeStream(
      of: News.self, bufferingPolicy: .bufferingNewest(capacity))
    listeners.withLock { $0.updateValue(Listener(stream: continuation), forKey: instance) }?
      .stream.finish()
    return stream
  }

  /// Tells all others.
  package func tell(_ news: News, from instance: Instance) {
    listeners.withLock { listeners in
      for other in listeners.keys where other != instance { tell(news, &listeners[other]) }
    }
  }

  /// Whatever a listener lost, a later word of it is among what it has yet to hear.
  private func tell(_ news: News, _ listener: inout Listener?) {
    guard case .dropped? = listener?.stream.yield(news) else { return }
    guard listener?.silence == 0 else {
      listener?.silence -= 1
      return
    }
    listener?.stream.yield(.lost)
    listener?.silence = capacity / 2
  }

  /// Ends what an instance hears.
  package func end(_ instance: Instance) {
    listeners.withLock { $0.removeValue(forKey: instance) }?.stream.finish()
  }
}
