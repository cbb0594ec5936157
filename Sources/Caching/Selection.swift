/// Selects the stored response for a request (RFC 9111 section 4.1).
package enum Selection {
  /// The index of the newest matching response, by `Date` and then by the time when it was received; nil if none matches.
  package static func newest(
    of stored: [StoredResponse], where fits: (StoredResponse) -> Bool = { _ in true }
  ) -> Int? {
    stored.indices.filter { fits(stored[$0]) }.max { a, b in
      (stored[a].generated, stored[a].responseTime) < (stored[b].generated, stored[b].responseTime)
    }
  }
}
