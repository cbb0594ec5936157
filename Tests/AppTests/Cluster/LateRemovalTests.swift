import Foundation
import Synchronization
import TestSupport
import Testing

@Suite("A late deletion from the bucket", .timeLimit(.minutes(15)))
struct LateRemovalTests {
  /// Blocks the first request that begins with certain bytes, until it is released.
  private final class Held: Sendable {
    private let first = Mutex<[UInt8]?>(nil)
    private let isLet = Mutex(false)

    func judge(_ bytes: [UInt8]) -> FaultyProxy.Fault {
      guard bytes.starts(with: Array("DELETE ".utf8)) else { return .none }
      let isFirst = first.withLock { first in
        first = first ?? bytes
        return first == bytes
      }
      return isFirst && !isLet.withLock(\.self) ? .stall : .none
    }

    func letGo() { isLet.withLock { $0 = true } }
  }

  @Test("a late deletion does not delete an object that was stored again since")
  func late() async throws {
    try await Cluster.open(2, ["cluster.lease": "5s"], isProxied: true) { cluster, origin in
      let proxy = try #require(cluster.proxies).bucket
      origin.on("/x", .ok(Fixtures.filedPNG))
      let first = try await cluster[0].run(["url": origin.url("/x")]).id
      let old = try #require(try await cluster.bucket.keys.first)

      // The other instance is suspended, so this one deletes the object. It is killed before the deletion is
      // done.
      let held = Held()
      proxy.judge { held.judge($0) }
      kill(cluster[1].processIdentifier, SIGSTOP)
      // Locks that the suspended instance holds in the database are released within seconds.
      let purge = Task {
        while try await cluster[0].send("DELETE", "/jobs/\(first)?purge=true").status == 503 {}
      }
      try await eventually { proxy.stalled == 1 }
      try await cluster[0].kill()
      _ = await purge.result
      kill(cluster[1].processIdentifier, SIGCONT)

      let next = try await cluster[1].run(["url": origin.url("/x")])
      #expect(next.phase == "success", "\(next.summary)")
      let keys = try await cluster.bucket.keys
      #expect(keys.count == 1 && !keys.contains(old))
      #expect(try await cluster.bucket.keys == Array(cluster.knownObjects))

      // When this object is gone, the held request is done.
      try await cluster.bucket.put(old, Fixtures.filedPNG)
      held.letGo()
      try await eventually { try await cluster.bucket.keys == keys }
      try FileManager.default.removeItem(atPath: cluster[0].folder + "/data/copies")
      try await cluster.replace(0)
      for service in cluster.services {
        #expect(try await service.image(of: next.id) == Fixtures.filedPNG)
      }
    }
  }
}
