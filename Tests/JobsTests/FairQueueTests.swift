import Jobs
import TestSupport
import Testing

@Suite("A queue that serves its clients round robin")
struct FairQueueTests {
  private struct Element: Equatable, Sendable {
    let number: Int
    var priority = 0
  }

  /// States the rule again: a flat list, and the number of each client's last turn.
  private struct Model {
    var waiting: [(client: Int, element: Element)] = []
    var turns: [Int: Int] = [:]
    var count = 0
    var comparesPriorities = true

    mutating func append(_ element: Element, for client: Int) {
      count += 1
      if !waiting.contains(where: { $0.client == client }) { turns[client] = count }
      waiting.append((client, element))
    }

    var clients: [Int] { Set(waiting.map(\.client)).sorted { turns[$0]! < turns[$1]! } }

    mutating func removeFirst(of client: Int) -> Element? {
      remove(waiting.firstIndex { $0.client == client })
    }

    mutating func removeFirst(where isReady: (Element) -> Bool) -> Element? {
      let ready = waiting.indices.filter { isReady(waiting[$0].element) }
      let next = ready.min { a, b in
        let (urgent, other) = (-waiting[a].element.priority, -waiting[b].element.priority)
        let (turn, otherTurn) = (turns[waiting[a].client]!, turns[waiting[b].client]!)
        return comparesPriorities
          ? (urgent, turn, a) < (other, otherTurn, b) : (turn, urgent, a) < (otherTurn, other, b)
      }
      if next != nil { comparesPriorities.toggle() }
      return remove(next)
    }

    private mutating func remove(_ index: Int?) -> Element? {
      guard let index else { return nil }
      count += 1
      turns[waiting[index].client] = count
      return waiting.remove(at: index).element
    }
  }

  @Test("random operations give the same order as a flat list", arguments: 0..<20)
  func random(seed: UInt64) {
    var random = SeededNumbers(state: seed)
    var (queue, model) = (FairQueue<Int, Element>(), Model())
    for number in 0..<1_000 {
      let client = Int.random(in: 0..<6, using: &random)
      switch Int.random(in: 0..<10, using: &random) {
      case 0..<5:
        let element = Element(number: number, priority: Int.random(in: 0..<3, using: &random))
        queue.append(element, for: client)
        model.append(element, for: client)
      case 5:
        let next = queue.next { $0 != client }
        #expect(next == model.clients.first { $0 != client })
        if let next {
          let popped = queue.popFirst(of: next)
          #expect(popped == model.removeFirst(of: next))
        }
      case 6:
        let popped = queue.popFirst()
        #expect(popped == model.clients.first.flatMap { model.removeFirst(of: $0) })
      case 7:
        let remainder = Int.random(in: 0..<3, using: &random)
        queue.removeAll(of: client) { $0.number % 3 == remainder }
        model.waiting.removeAll { $0.client == client && $0.element.number % 3 == remainder }
      default:
        let remainder = Int.random(in: 0..<4, using: &random)
        let popped = queue.popFirst(by: \.priority) { $0.number % 4 != remainder }
        #expect(popped == model.removeFirst { $0.number % 4 != remainder })
      }
      #expect(queue.count == model.waiting.count && queue.isEmpty == model.waiting.isEmpty)
      #expect(Array(queue.clients) == model.clients)
      #expect(queue.contains(client) == model.clients.contains(client))
    }
  }

  @Test("a client is served within as many turns as there are clients, however much the others add")
  func noStarvation() {
    var queue = FairQueue<Int, Int>()
    for client in 1...4 { for _ in 0..<50 { queue.append(client, for: client) } }
    queue.append(0, for: 0)
    var turns = 0
    while queue.contains(0) {
      turns += 1
      // Only the other clients add more.
      if let served = queue.popFirst(), served != 0 { queue.append(served, for: served) }
    }
    #expect(turns == 5)
  }

  @Test("with priorities, a client is served within twice as many turns as there are clients")
  func noStarvationByPriority() {
    var queue = FairQueue<Int, Int>()
    for client in 1...4 { for _ in 0..<50 { queue.append(client, for: client) } }
    queue.append(0, for: 0)
    var turns = 0
    while queue.contains(0) {
      turns += 1
      if let served = queue.popFirst(by: { $0 }, where: { _ in true }), served != 0 {
        queue.append(served, for: served)
      }
    }
    #expect(turns <= 10)
  }

  @Test("a client that may not be served keeps its turn")
  func skipped() {
    var queue = FairQueue<String, Int>()
    queue.append(1, for: "a")
    queue.append(2, for: "b")
    queue.append(3, for: "c")
    #expect(queue.next { $0 != "a" } == "b")
    let served = queue.popFirst(of: "b")
    #expect(served == 2 && Array(queue.clients) == ["a", "c"])
    #expect(queue.next { $0 == "x" } == nil)
  }
}
