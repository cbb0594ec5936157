extension [HeaderField] {
  /// The content codings of the body except `identity` (RFC 9110 section 8.4), in lower case, in the order in
  /// which they were applied.
  package var contentCodings: [String] {
    filter { $0.name.lowercased() == "content-encoding" }
      .flatMap { $0.value.lowercased().split(separator: ",") }
      .map { coding in
        let blanks: Set<Character> = [" ", "\t"]
        let end = coding.lastIndex { !blanks.contains($0) }.map { coding.index(after: $0) }
        return String(coding[..<(end ?? coding.startIndex)].drop { blanks.contains($0) })
      }
      .filter { !["", "identity"].contains($0) }
  }
}
