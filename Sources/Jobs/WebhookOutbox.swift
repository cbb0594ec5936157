/// Messages that wait to be sent. Their first word comes by the transaction that ends what they tell of
/// (``WebhookMessage/init(endOf:after:)``, ``WebhookMessage/init(endOf:wasOver:)``).
public protocol WebhookOutbox: Sendable {
  /// Hands over messages whose time has come, going from host to host, so that one whose receiver is down holds up no
  /// other host's. Whoever is given one holds it until it is settled, or its lease is over.
  ///
  /// - Throws: `.leaseLost` where the instance's lease is over.
  func takeMessages(_ request: MessageRequest) async throws(StoreError) -> TakenMessages

  /// Writes down what came of sending a message, and lets it go; one that is to be sent no more, of a job or batch
  /// that is forgotten, is forgotten too. Nothing is written where the instance holds it no more, or it is gone.
  func settle(_ message: WebhookMessage, by instance: Instance) async throws(StoreError)

  /// What was told, or is to be, of a job or batch, the oldest first.
  func messages(of subject: JobID) async throws(StoreError) -> [WebhookMessage]

  /// Has the newest message of a job or batch sent again, now.
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
  /// At the most.
  public var count: Int
  /// Messages on their way to one host, whoever sends them.
  public var perHost: Int
  /// Where the last look had come to; nil: from the first host on.
  public var after: String?

  /// A request.
  public init(
    by instance: Instance, sending: Set<WebhookMessage.ID>, count: Int, perHost: Int,
    after: String? = nil
  ) {
    (self.instance, self.sending, self.count) = (instance, sending, count)
    (self.perHost, self.after) = (perHost, after)
  }

  /// Hosts that one look goes through.
  package static let mostHosts = 256
}

/// Messages to be sent.
public struct TakenMessages: Sendable, Equatable {
  /// The messages.
  public var messages: [WebhookMessage] = []
  /// The host to go on after; nil where all were looked at.
  public var after: String?
  /// When the next message that nobody holds will be due, where all were looked at.
  public var nextDue: Timestamp?

  /// None.
  public init() {}
}
