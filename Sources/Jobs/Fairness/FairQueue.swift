internal import DequeModule

/// A queue of elements that serves its clients round robin: the client that was served longest ago is next. A new
/// client comes after those that wait. The elements of one client are served in the order of their arrival.
///
/// If elements have priorities, every second turn compares priorities before clients. The other turns compare
/// clients first, so that high priorities of one client do not block another one.
package struct FairQueue<Client: Hashable & Sendable, Element: Sendable>: Sendable {
  private var elements: [Client: Deque<Element>] = [:]
  /// The clients that have elements, each once. The first one is next.
  private var order = Deque<Client>()
  /// Whether the next turn with priorities compares them before clients.
  private var comparesPriorities = true
  /// The number of elements.
  package private(set) var count = 0

  package init() {}

  package var isEmpty: Bool { count == 0 }

  /// The clients that have elements, in serving order.
  package var clients: some RandomAccessCollection<Client> { order }

  /// Whether the client has elements.
  package func contains(_ client: Client) -> Bool { elements[client] != nil }

  package mutating func append(_ element: Element, for client: Client) {
    if elements[client] == nil { order.append(client) }
    elements[client, default: []].append(element)
    count += 1
  }

  /// Returns the client that is next among those that may be served. ``popFirst(of:)`` serves it.
  package func next(where mayServe: (Client) -> Bool) -> Client? { order.first(where: mayServe) }

  /// Removes and returns the first element of the client, and ends the client's turn.
  package mutating func popFirst(of client: Client) -> Element? {
    guard elements[client] != nil else { return nil }
    return pop(0, of: client)
  }

  /// Removes and returns the next element.
  package mutating func popFirst() -> Element? { order.first.flatMap { popFirst(of: $0) } }

  /// Removes and returns the next element by priority and client.
  ///
  /// Inspects all elements.
  ///
  /// - Parameters:
  ///   - priority: The element's priority; the greatest is the most urgent.
  ///   - isReady: Whether the element may be removed now.
  package mutating func popFirst<Urgency: Comparable>(
    by priority: (Element) -> Urgency, where isReady: (Element) -> Bool
  ) -> Element? {
    var next: (client: Client, index: Int, priority: Urgency)?
    for client in order {
      guard let first = mostUrgent(of: client, by: priority, where: isReady) else { continue }
      // If priorities are equal, the client with the earlier turn wins.
      if next.map({ $0.priority < first.priority }) ?? true {
        next = (client, first.index, first.priority)
      }
      if !comparesPriorities { break }
    }
    guard let next else { return nil }
    comparesPriorities.toggle()
    return pop(next.index, of: next.client)
  }

  /// Removes elements of a client. The client keeps its turn as long as it has others.
  package mutating func removeAll(of client: Client, where isMeant: (Element) -> Bool) {
    guard let before = elements[client]?.count else { return }
    elements[client]?.removeAll(where: isMeant)
    let left = elements[client]?.count ?? 0
    count -= before - left
    guard left == 0 else { return }
    elements[client] = nil
    order.removeAll { $0 == client }
  }

  /// The client's most urgent element; of equal priorities, the one that arrived first.
  private func mostUrgent<Urgency: Comparable>(
    of client: Client, by priority: (Element) -> Urgency, where isReady: (Element) -> Bool
  ) -> (index: Int, priority: Urgency)? {
    var first: (index: Int, priority: Urgency)?
    for (index, element) in (elements[client] ?? []).enumerated() where isReady(element) {
      let priority = priority(element)
      if first.map({ $0.priority < priority }) ?? true { first = (index, priority) }
    }
    return first
  }

  private mutating func pop(_ index: Int, of client: Client) -> Element? {
    let element = elements[client]?.remove(at: index)
    count -= 1
    if let turn = order.firstIndex(of: client) { order.remove(at: turn) }
    if elements[client]?.isEmpty == true { elements[client] = nil } else { order.append(client) }
    return element
  }
}
