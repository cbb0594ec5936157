/// Messages that wait to be sent. Their first word comes by the transaction that ends what they tell of
/// (``WebhookMessage/init(endOf:after:)``, ``WebhookMessage/init(endOf:wasOver:)``).
public protocol WebhookOutbox: Sendable {
  /// Hands over messages whose time has come, going from host to host, so that one whose receiver is down holds up no
  /// other host's, and passing over owners that have their share (``MessageShares``). Whoever is given one holds it until
  /// it is settled, or its lease is over.
  ///
  /// - Throws: `.leaseLost` where the instance's lease is over.
  func takeMessages(_ request: MessageRequest) async throws(StoreError) -> TakenMessages

  /// Writes down what came of sending a message, and lets it go. One that was asked for meanwhile is due at once; one that
  /// is to be sent no more, of a job or batch that is forgotten, is forgotten too. Nothing is written where the instance
  /// holds it no more, or it is gone.
  func settle(_ message: WebhookMessage, by instance: Instance) async throws(StoreError)

  /// What was told, or is to be, of a job or batch, the oldest first: the newest ``WebhookMessage/mostOfSubject``.
  func messages(of subject: JobID) async throws(StoreError) -> [WebhookMessage]

  /// Has the newest message of a job or batch sent again: now, or once the try that is under way is over.
  /// - Returns: the message; nil where there is none.
  func sendAgain(of subject: JobID) async throws(StoreError) -> WebhookMessage?

  /// How many messages wait, counted up to a bound.
  func waitingMessages() async throws(StoreError) -> Int

  /// How many of an owner's messages wait, counted up to `limit`.
  func waitingMessages(of owner: Owner, upTo limit: Int) async throws(StoreError) -> Int
}

/// Which messages an instance wants.
public struct MessageRequest: Sendable {
  /// Who asks.
  public var instance: Instance
  /// Those that it is sending: whatever else it holds it was given by an answer that got lost.
  public var sending: Set<WebhookMessage.ID>
  /// How many of those are whose.
  public var byOwner: [Owner: Int]
  /// Places that are free: at the most so many are handed over.
  public var count: Int
  /// Messages on their way to one host, whoever sends them.
  public var perHost: Int
  /// Where the last look had come to; nil: from the first host on.
  public var after: String?

  /// A request.
  public init(
    by instance: Instance, sending: Set<WebhookMessage.ID>, byOwner: [Owner: Int] = [:],
    count: Int, perHost: Int, after: String? = nil
  ) {
    (self.instance, self.sending, self.byOwner) = (instance, sending, byOwner)
    (self.count, self.perHost, self.after) = (count, perHost, after)
  }

  /// Hosts that one look goes through.
  package static let mostHosts = 256
}

/// Messages to be sent.
public struct TakenMessages: Sendable, Equatable {
  /// The messages.
  public var messages: [WebhookMessage] = []
  /// The host to go on after; nil where all were looked at. The one that was asked with: whoever waits has its share.
  public var after: String?
  /// When the next message that nobody holds will be due, where all were looked at.
  public var nextDue: Timestamp?
  /// How many were due that can't be read, and were put aside: they wait no more.
  public var unreadable = 0

  /// None.
  public init() {}
}

/// An instance's places for messages, shared among owners: one takes as long as it has fewer messages on their way than
/// places are free. So an owner alone gets half of them, the next one half of what is left, and one whose receivers are
/// all down delays nobody else's.
package struct MessageShares {
  private var free: Int
  private var byOwner: [Owner: Int]

  package init(_ request: MessageRequest) { (free, byOwner) = (request.count, request.byOwner) }

  /// Owners that get nothing now: few, as they hold most places.
  package var full: [Owner] { byOwner.filter { $0.value >= free }.map(\.key) }

  package func hasPlace(for owner: Owner) -> Bool { byOwner[owner, default: 0] < free }

  /// - Returns: whether there was a place.
  package mutating func take(for owner: Owner) -> Bool {
    guard hasPlace(for: owner) else { return false }
    byOwner[owner, default: 0] += 1
    free -= 1
    return true
  }
}
