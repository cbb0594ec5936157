/// How a capacity is shared among clients: all of it is one's for as long as nobody else asks, half of it while others
/// do. A value: whoever keeps it guards it.
///
/// Others ask when they hold a part of it, or were refused within the last minute; so a client that came too late finds
/// room as soon as the one that has all of it gives some back.
public struct SharedCapacity<Client: Hashable & Sendable>: Sendable {
  /// For so long a refused client counts as one that asks.
  public static var patience: Duration { .seconds(60) }

  /// What is held in all.
  public private(set) var held = 0
  private var shares: [Client: Int] = [:]
  /// The two clients refused last: whoever asks, one of them is another.
  private var refused: [(client: Client, at: Timestamp)] = []

  /// Nothing is held.
  public init() {}

  /// What a client holds.
  public func share(of client: Client) -> Int { shares[client] ?? 0 }

  /// Whether there is room for so much more of the client's; notes that there was none.
  public mutating func hasRoom(
    for amount: Int, of client: Client, within capacity: Int, at moment: Timestamp
  ) -> Bool {
    let most = most(for: client, within: capacity, at: moment)
    if amount <= capacity - held, amount <= most - share(of: client) { return true }
    refused.removeAll { $0.client == client }
    refused = refused.suffix(1) + [(client, moment)]
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
    _ amount: Int, for client: Client, within capacity: Int, at moment: Timestamp
  ) -> Bool {
    guard hasRoom(for: amount, of: client, within: capacity, at: moment) else { return false }
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

  private func most(for client: Client, within capacity: Int, at moment: Timestamp) -> Int {
    let othersAsk =
      held > share(of: client)
      || refused.contains { $0.client != client && moment - $0.at < Self.patience }
    return othersAsk ? capacity - capacity / 2 : capacity
  }
}
