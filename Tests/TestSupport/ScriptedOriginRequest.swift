/// A request that a ``ScriptedOrigin`` received.
package struct ScriptedRequest: Sendable {
  /// The number of the connection, from 1 in the order of acceptance.
  package var connection: Int
  /// The method, such as `GET`.
  package var method: String
  /// Path and query as sent.
  package var target: String
  /// The header fields as sent, in order.
  package var headers: [(name: String, value: String)]
  /// The content, if the request has a length.
  package var content: [UInt8] = []
  /// When the header section was complete.
  package var received: ContinuousClock.Instant

  /// The target without its query.
  package var path: String { String(target.prefix { $0 != "?" }) }

  /// The first value of a field. The case of its name is ignored.
  package func header(_ name: String) -> String? {
    headers.first { $0.name.lowercased() == name.lowercased() }?.value
  }

  init?(head: [UInt8], connection: Int) {
    let lines = String(decoding: head, as: UTF8.self).split(separator: "\r\n")
    guard let first = lines.first?.split(separator: " "), first.count == 3 else { return nil }
    self.connection = connection
    method = String(first[0])
    target = String(first[1])
    received = .now
    headers = lines.dropFirst().compactMap { line in
      guard let colon = line.firstIndex(of: ":") else { return nil }
      let value = line[line.index(after: colon)...].drop { $0 == " " }
      return (String(line[..<colon]), String(value))
    }
  }
}
