internal import Settings

extension Configuration {
  /// A value from the command line.
  package struct Flag: Sendable, Equatable {
    /// The flag with its dashes, for messages.
    package let name: String
    /// The key that it sets.
    package let key: String
    /// The value as it was written.
    package let value: String

    /// A flag that sets a key.
    package init(name: String, key: String, value: String) {
      (self.name, self.key, self.value) = (name, key, value)
    }
  }

  /// The variable that `imagefetch get` reads its token from. It belongs to no key, and is accepted by all commands.
  package static let tokenVariable = SettingName.environmentPrefix + "TOKEN"

  /// Loads the configuration. Flags override the environment, which overrides the file, which overrides the defaults.
  ///
  /// The variable of a list contains its items separated by commas. That of `auth.tokens` contains YAML or JSON:
  /// `[{name: web, token_file: /run/secrets/web, scopes: [jobs]}]`. Relative paths start at the working directory.
  ///
  /// - Parameters:
  ///   - file: a YAML file of at most 1 MiB; nil for none.
  ///   - environment: all variables. A variable that starts with `IMAGEFETCH_` and belongs to no key is a mistake. The
  ///     exceptions are ``tokenVariable`` and the variables that Kubernetes sets for a Service named `imagefetch`.
  /// - Throws: All mistakes at once.
  package static func load(
    file: String? = nil, environment: [String: String] = [:], flags: [Flag] = []
  ) throws(Mistakes) -> Configuration {
    var loader = ConfigurationLoader()
    if let file { loader.read(file: file) }
    return try finish(&loader, environment, flags)
  }

  /// Loads the configuration from the text of a file.
  ///
  /// - Parameter name: the file's name in messages.
  package static func load(
    yaml: String, name: String, environment: [String: String] = [:], flags: [Flag] = []
  ) throws(Mistakes) -> Configuration {
    var loader = ConfigurationLoader()
    loader.read(Array(yaml.utf8), of: name)
    return try finish(&loader, environment, flags)
  }

  private static func finish(
    _ loader: inout ConfigurationLoader, _ environment: [String: String], _ flags: [Flag]
  ) throws(Mistakes) -> Configuration {
    loader.read(environment: environment)
    loader.read(flags: flags)
    loader.complete(from: environment)
    loader.checkRules()
    guard loader.mistakes.isEmpty else { throw Mistakes(all: loader.mistakes) }
    return loader.configuration
  }
}
