extension String {
  /// Its first bytes, with U+FFFD for a character that is cut through. One `Character` may have megabytes: what others
  /// worded is never cut by those.
  package func prefix(bytes count: Int) -> String {
    String(decoding: utf8.prefix(count), as: UTF8.self)
  }
}
