internal import CYAML

/// The libyaml that is linked.
public enum YAMLLibrary {
  /// Its version, such as `0.2.5`.
  public static var version: String { String(cString: yaml_get_version_string()) }
}
