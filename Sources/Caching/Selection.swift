/// Which stored response answers a request (RFC 9111 section 4.1).
public enum Selection {
  /// The index of the newest that matches, by `Date`, then by when it came; nil for none.
  public static func choose(_ stored: [StoredResponse], for request: [Field]) -> Int? {
    stored.indices.filter { stored[$0].matches(request) }.max { a, b in
      (stored[a].generated, stored[a].responseTime) < (stored[b].generated, stored[b].responseTime)
    }
  }
}
