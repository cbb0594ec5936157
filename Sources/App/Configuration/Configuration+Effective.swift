internal import Settings

extension Configuration {
  /// Every key with its value, as YAML. Secrets of tokens, signing keys and URLs are shown as `hidden`; everything else can
  /// be read again.
  package func effective() -> String {
    var lines: [String] = []
    var sections: [Substring] = []
    for key in Configuration.keys {
      let names = key.path.split(separator: ".")
      let own = names.dropLast()
      let shared = zip(sections, own).prefix { $0 == $1 }.count
      for depth in shared..<own.count {
        lines.append(String(repeating: "  ", count: depth) + own[depth] + ":")
      }
      sections = Array(own)
      let indent = String(repeating: "  ", count: own.count)
      lines.append(indent + names[own.count] + ": " + value(of: key))
    }
    return lines.joined(separator: "\n") + "\n"
  }

  /// `view.keys` is shown as empty if the keys were read from `view.keys_file`.
  private func value(of key: Key) -> String {
    key.path == "view.keys" && view.keysFile != nil ? "[]" : key.show(self)
  }
}
