/// How a capacity is shared among clients: all of it is one's for as long as no other client asks, half of it while others
/// do. A part of it may be kept for clients that hold nothing. A value: its keeper guards it.
///
/// Others ask when they hold a part of it, or were refused or ``note(_:at:)``d within the last minute; so a client that arrives
/// too late finds room as soon as the one that has all of it gives some back.
public struct SharedCapacity<Client: Hashable & Sendable>: Sendable {
  /// For so long a client that was refused counts as one that asks.
  public static var patience: Duration { .seconds(60) }

  /// What is held in all.
  public private(set) var held = 0
  private var shares: [Client: Int] = [:]
  /// The last two clients that were noted: one of them is another than the one that asks.
  private var asked: [(client: Client, at: Timestamp)] = []

  /// Nothing is held.
  public init() {}

  /// What a client holds.
  public func share(of client: Client) -> Int { shares[client] ?? 0 }

  /// The clients that hold a part.
  public var clients: some Collection<Client> { shares.keys }

  /// How much more a client may hold; negative where it holds too much.
  ///
  /// - Parameter kept: the part left for clients that hold nothing. The first amount that such a client takes may be of it.
  public func room(
    for client: Client, within capacity: Int, keeping kept: Int = 0, at moment: Timestamp
  ) -> Int {
    let share = share(of: client)
    return min(
      capacity - held - (share > 0 ? kept : 0),
      (isAsked(besides: client, at: moment) ? capacity - capacity / 2 : capacity) - share)
  }

  /// Whether there is room for so much more of the client's; notes that there was none.
  public mutating func hasRoom(
    for amount: Int, of client: Client, within capacity: Int, keeping kept: Int = 0,
    at moment: Timestamp
  ) -> Bool {
    if amount <= room(for: client, within: capacity, keeping: kept, at: moment) { return true }
    note(client, at: moment)
    return false
  }

  /// The same, within what the client may have of it, too: who has that is not refused by others.
  public mutating func hasRoom(
    for amount: Int, of client: Client, within capacity: QueueCapacity, at moment: Timestamp
  ) -> Bool {
    amount <= capacity.ofOwner - share(of: client)
      && hasRoom(for: amount, of: client, within: capacity.all, at: moment)
  }

  /// Takes so much for the client, where there is room.
  public mutating func take(
    _ amount: Int, for client: Client, within capacity: Int, keeping kept: Int = 0,
    at moment: Timestamp
  ) -> Bool {
    guard hasRoom(for: amount, of: client, within: capacity, keeping: kept, at: moment) else {
      return false
    }
    hold(amount, for: client)
    return true
  }

  /// Holds so much whether there is room or not: what was taken before, or must not fail.
  public mutating func hold(_ amount: Int, for client: Client) {
    held += amount
    shares[client, default: 0] += amount
  }

  /// Gives so much of the client's back.
  public mutating func release(_ amount: Int, of client: Client) {
    held -= amount
    let left = share(of: client) - amount
    shares[client] = left > 0 ? left : nil
  }

  /// The client asked, or held something until now.
  public mutating func note(_ client: Client, at moment: Timestamp) {
    asked.removeAll { $0.client == client }
    asked = asked.suffix(1) + [(client, moment)]
  }

  /// When a client may hold more though nothing is given back, as another one will then not have asked for a minute; nil:
  /// time changes nothing.
  public func nextChange(at moment: Timestamp) -> Timestamp? {
    asked.map { $0.at + Self.patience }.filter { $0 > moment }.min()
  }

  /// The same shares by other names of the clients, which differ as they do.
  public func renamed<Other>(_ name: (Client) -> Other) -> SharedCapacity<Other> {
    var renamed = SharedCapacity<Other>()
    for (client, share) in shares { renamed.hold(share, for: name(client)) }
    for (client, moment) in asked { renamed.note(name(client), at: moment) }
    return renamed
  }

  private func isAsked(besides client: Client, at moment: Timestamp) -> Bool {
    held > share(of: client)
      || asked.contains { $0.client != client && moment - $0.at < Self.patience }
  }
}
