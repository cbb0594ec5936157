import Jobs
import Testing

/// The value under test, where an expectation can change it.
private final class Shared<Client: Hashable & Sendable> {
  private var value = SharedCapacity<Client>()
  var held: Int { value.held }
  func share(of client: Client) -> Int { value.share(of: client) }
  func release(_ amount: Int, of client: Client) { value.release(amount, of: client) }
  func take(
    _ amount: Int, for client: Client, within capacity: Int, keeping kept: Int = 0,
    at moment: Timestamp
  ) -> Bool {
    value.take(amount, for: client, within: capacity, keeping: kept, at: moment)
  }
}

@Suite("A capacity that clients share")
struct SharedCapacityTests {
  private let moment = Timestamp(milliseconds: 1_000_000)
  private var later: Timestamp { moment + SharedCapacity<String>.patience }

  @Test("is all one client's while nobody else asks")
  func alone() {
    let shared = Shared<String>()
    #expect(shared.take(10, for: "a", within: 10, at: moment))
    #expect(!shared.take(1, for: "a", within: 10, at: moment))
    shared.release(1, of: "a")
    #expect(shared.take(1, for: "a", within: 10, at: moment))
    #expect(shared.held == 10 && shared.share(of: "a") == 10)
  }

  @Test("is half a client's while another holds some of it")
  func halves() {
    let shared = Shared<String>()
    #expect(shared.take(1, for: "b", within: 10, at: moment))
    #expect(!shared.take(6, for: "a", within: 10, at: moment))
    #expect(shared.take(5, for: "a", within: 10, at: moment))
    #expect(!shared.take(1, for: "a", within: 10, at: later))
    #expect(shared.take(4, for: "b", within: 10, at: moment))
    shared.release(5, of: "b")
    #expect(shared.take(1, for: "a", within: 10, at: later + SharedCapacity<String>.patience))
  }

  @Test("lets in who came too late as soon as the first gives some back, however that one asks")
  func refused() {
    let shared = Shared<String>()
    #expect(shared.take(10, for: "a", within: 10, at: moment))
    #expect(!shared.take(1, for: "b", within: 10, at: moment))
    shared.release(1, of: "a")
    #expect(!shared.take(1, for: "a", within: 10, at: moment))
    #expect(shared.take(1, for: "b", within: 10, at: moment))
  }

  @Test("forgets after a while who was refused, and does not take a client for another")
  func forgets() {
    let shared = Shared<String>()
    #expect(shared.take(10, for: "a", within: 10, at: moment))
    for _ in 0..<3 { #expect(!shared.take(1, for: "a", within: 10, at: moment)) }
    shared.release(3, of: "a")
    #expect(shared.take(3, for: "a", within: 10, at: moment))
    #expect(!shared.take(1, for: "b", within: 10, at: moment))
    #expect(!shared.take(1, for: "a", within: 10, at: moment))
    shared.release(2, of: "a")
    #expect(!shared.take(1, for: "a", within: 10, at: moment))
    #expect(shared.take(1, for: "a", within: 10, at: later))
  }

  @Test("leaves a part for clients that hold nothing, of which such a client takes one and no more")
  func kept() {
    let shared = Shared<String>()
    #expect(shared.take(1, for: "a", within: 8, keeping: 2, at: moment))
    #expect(shared.take(5, for: "a", within: 8, keeping: 2, at: moment))
    #expect(!shared.take(1, for: "a", within: 8, keeping: 2, at: moment))
    #expect(shared.take(1, for: "b", within: 8, keeping: 2, at: moment))
    #expect(!shared.take(1, for: "b", within: 8, keeping: 2, at: moment))
    #expect(shared.take(1, for: "c", within: 8, keeping: 2, at: moment))
    #expect(shared.held == 8)
  }

  @Test("counts one that held some of it until now as one that asks")
  func noted() {
    var shared = SharedCapacity<String>()
    shared.note("a", at: moment)
    #expect(shared.room(for: "a", within: 10, at: moment) == 10)
    shared.note("b", at: moment)
    #expect(shared.room(for: "a", within: 10, at: moment) == 5)
    #expect(shared.nextChange(at: moment) == later)
    #expect(shared.room(for: "a", within: 10, at: later) == 10)
    #expect(shared.nextChange(at: later) == nil)
  }

  @Test("has room for one of each where it is as small as can be")
  func smallest() {
    let shared = Shared<String>()
    #expect(shared.take(1, for: "a", within: 3, at: moment))
    #expect(shared.take(1, for: "b", within: 3, at: moment))
    #expect(shared.take(1, for: "b", within: 3, at: moment))
    #expect(!shared.take(1, for: "c", within: 3, at: moment))
    #expect(!shared.take(.max, for: "d", within: .max, at: moment))
  }

  @Test("is given back to the last bit, whatever was done")
  func balances() {
    let shared = Shared<Int>()
    var taken = [Int](repeating: 0, count: 4)
    var random = SystemRandomNumberGenerator()
    for _ in 0..<2_000 {
      let client = Int.random(in: 0..<4, using: &random)
      let amount = Int.random(in: 1...9, using: &random)
      if Bool.random(using: &random), taken[client] >= amount {
        shared.release(amount, of: client)
        taken[client] -= amount
      } else if shared.take(amount, for: client, within: 40, at: moment) {
        taken[client] += amount
      }
      #expect(shared.held == taken.reduce(0, +) && shared.held <= 40)
    }
    for client in 0..<4 { shared.release(taken[client], of: client) }
    #expect(shared.held == 0)
  }
}
