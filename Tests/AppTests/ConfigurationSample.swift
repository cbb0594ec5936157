import App
import Settings

/// deploy/imagefetch.yaml and the table of keys in docs/configuration.md, as the modules declare their keys.
enum ConfigurationSample {
  static let yaml: String = {
    var lines = introduction.split(separator: "\n", omittingEmptySubsequences: false)
      .map(String.init)
    var sections: [Substring] = []
    for key in Configuration.keys {
      let names = key.path.split(separator: ".")
      let own = Array(names.dropLast())
      if sections.first != own.first || own.isEmpty { lines.append("") }
      for depth in zip(sections, own).prefix(while: ==).count..<own.count {
        let name = own[...depth].joined(separator: ".")
        let doc = Configuration.sectionDocs[name] ?? ""
        lines += comment(doc, depth)
        lines.append("\(indent(depth))\(own[depth]):")
      }
      sections = own
      lines += comment(explanation(of: key), own.count)
      lines.append("\(indent(own.count))#\(names[own.count]): \(defaultText(of: key))")
    }
    return lines.joined(separator: "\n") + "\n"
  }()

  /// The rows of the table, without its head.
  static let table = Configuration.keys.map { key in
    "`\(key.path)` | `\(defaultText(of: key))` | \(key.allowedValues)"
  }

  private static let introduction = """
    # imagefetch: every key at its default. `make configuration` writes this file.
    #
    # A line that starts with "#" and a name is a key: to set it, remove the "#" and change the value.
    # Lines that start with "# " explain the key below. The allowed values are in brackets.
    #
    # Sizes are B, KB, MB, GB, KiB, MiB, GiB; a plain number is bytes. Durations are ms, s, m, h, d; a
    # plain number is seconds. Fractions need a unit: 1.5GB.
    #
    # Each key has an environment variable, which overrides the file: IMAGEFETCH_FETCH_MAX_BYTES sets
    # fetch.max_bytes. In variables, items of lists are separated by commas. An empty variable means an
    # empty list, or null. A variable that starts with IMAGEFETCH_ and belongs to no key is a mistake.
    # Flags (--host, --port) override variables.
    #
    # Relative paths start at the working directory. ${NAME} is not expanded, aliases (*name) are refused.
    # `imagefetch check --config FILE` prints all mistakes of a file, or else the resulting configuration.
    """

  /// The default, without the version of this release.
  private static func defaultText(of key: Configuration.Key) -> String {
    key.defaultText.replacing(App.version, with: "<version>")
  }

  /// The key's documentation with the allowed values at the end of its first sentence.
  private static func explanation(of key: Configuration.Key) -> String {
    let end = key.doc.firstRange(of: #/\.(?= |\n|$)/#)?.lowerBound ?? key.doc.endIndex
    return "\(key.doc[..<end]) [\(key.allowedValues)]\(key.doc[end...])"
  }

  /// A comment. The first line of the text is wrapped; the others are examples and stay as they are.
  private static func comment(_ text: String, _ depth: Int) -> [String] {
    guard !text.isEmpty else { return [] }
    let start = indent(depth) + "#"
    let parts = text.split(separator: "\n", omittingEmptySubsequences: false)
    var lines = [start]
    for word in parts[0].split(separator: " ") {
      if lines[lines.count - 1].count + 1 + word.count > 100 { lines.append(start) }
      lines[lines.count - 1] += " \(word)"
    }
    return lines + parts.dropFirst().map { "\(start) \($0)" }
  }

  private static func indent(_ depth: Int) -> String { String(repeating: "  ", count: depth) }
}
