extension Configuration {
  /// A value from the command line.
  public struct Flag: Sendable, Equatable {
    /// The flag with its dashes, for messages.
    public let name: String
    /// The key that it sets.
    public let key: String
    /// The value as it was written.
    public let value: String

    /// A flag that sets a key.
    public init(name: String, key: String, value: String) {
      (self.name, self.key, self.value) = (name, key, value)
    }
  }

  /// The variable that `imagefetch get` has its token from; no key's, and no mistake.
  public static let tokenVariable = Key.environmentPrefix + "TOKEN"

  /// Flags over environment over file over defaults.
  ///
  /// A variable of a list holds its items between commas, one of `auth.tokens` holds YAML (JSON is
  /// YAML too): `[{name: web, token_file: /run/secrets/web, scopes: [jobs]}]`. Files are named from
  /// the working directory.
  ///
  /// - Parameters:
  ///   - file: a YAML file of at most 1 MiB; nil for none.
  ///   - environment: all variables. One that begins with `IMAGEFETCH_` and belongs to no key is a
  ///     mistake, but for ``tokenVariable`` and those that Kubernetes sets beside a Service named `imagefetch`.
  /// - Throws: all mistakes at once.
  public static func load(
    file: String? = nil, environment: [String: String] = [:], flags: [Flag] = []
  ) throws(Mistakes) -> Configuration {
    var loader = Loader()
    if let file { loader.read(file: file) }
    return try finish(&loader, environment, flags)
  }

  /// The same of a file's text.
  ///
  /// - Parameter name: what messages call the file.
  public static func load(
    yaml: String, name: String, environment: [String: String] = [:], flags: [Flag] = []
  ) throws(Mistakes) -> Configuration {
    var loader = Loader()
    loader.read(Array(yaml.utf8), of: name)
    return try finish(&loader, environment, flags)
  }

  private static func finish(
    _ loader: inout Loader, _ environment: [String: String], _ flags: [Flag]
  ) throws(Mistakes) -> Configuration {
    loader.read(environment: environment)
    loader.read(flags: flags)
    loader.complete(from: environment)
    loader.finish()
    guard loader.mistakes.isEmpty else { throw Mistakes(all: loader.mistakes) }
    return loader.configuration
  }
}
