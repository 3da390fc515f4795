//! A column: its name, its type, and where its values come from.

use serde_json::Value;

use super::{
    cell::{Cell, Kind},
    line::{self, Line},
};

#[derive(Debug)]
pub(crate) struct Column {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Every row has it.
    pub(super) is_required: bool,
    pub(super) from: From,
    pub(super) meaning: &'static str,
}

/// Where the values come from.
#[derive(Debug)]
pub(super) enum From {
    /// The first of these members that the line has.
    Members(&'static [&'static str]),
    /// The member of the line's boot that has the column's name.
    Boot,
    Made(fn(&Line<'_>) -> Cell),
}

const fn member(
    name: &'static str,
    kind: Kind,
    members: &'static [&'static str],
    meaning: &'static str,
) -> Column {
    let is_required = matches!(kind, Kind::Flag);
    Column { name, kind, is_required, from: From::Members(members), meaning }
}

pub(super) const fn name(
    name: &'static str,
    members: &'static [&'static str],
    meaning: &'static str,
) -> Column {
    member(name, Kind::Name, members, meaning)
}

pub(super) const fn text(
    name: &'static str,
    members: &'static [&'static str],
    meaning: &'static str,
) -> Column {
    member(name, Kind::Text, members, meaning)
}

pub(super) const fn integer(
    name: &'static str,
    members: &'static [&'static str],
    meaning: &'static str,
) -> Column {
    member(name, Kind::Integer, members, meaning)
}

pub(super) const fn flag(
    name: &'static str,
    members: &'static [&'static str],
    meaning: &'static str,
) -> Column {
    member(name, Kind::Flag, members, meaning)
}

pub(super) const fn time(
    name: &'static str,
    members: &'static [&'static str],
    meaning: &'static str,
) -> Column {
    member(name, Kind::Time, members, meaning)
}

pub(super) const fn made(
    name: &'static str,
    kind: Kind,
    make: fn(&Line<'_>) -> Cell,
    meaning: &'static str,
) -> Column {
    let is_required = matches!(kind, Kind::Flag | Kind::Map);
    Column { name, kind, is_required, from: From::Made(make), meaning }
}

impl Column {
    pub(super) const fn of_boot(name: &'static str, meaning: &'static str) -> Self {
        Self { name, kind: Kind::Name, is_required: false, from: From::Boot, meaning }
    }

    pub(super) const fn labels(name: &'static str, meaning: &'static str) -> Self {
        Self { name, kind: Kind::Map, is_required: true, from: From::Boot, meaning }
    }

    pub(super) const fn required(mut self) -> Self {
        self.is_required = true;
        self
    }

    /// The value of this column for a line.
    pub(super) fn value(&self, line: &Line<'_>) -> Cell {
        match &self.from {
            From::Members(members) => {
                self.cell(members.iter().find_map(|member| line::at(line.value, member)))
            }
            From::Boot => line.of_boot(self.name, self.kind),
            From::Made(make) => make(line),
        }
    }

    /// Says what is missing in a line that has no value for this column, by the names of the line's members.
    pub(super) fn lack(&self) -> String {
        let Self { name, kind, from, .. } = self;
        let From::Members(members) = from else { return format!("nothing for the column {name}") };
        let what = match kind {
            Kind::Name | Kind::Text => "text",
            Kind::Integer => "whole number of 64 bits",
            Kind::Flag => "true or false",
            Kind::Time => "time of these centuries",
            Kind::Map => "object",
        };
        format!("no {what} as {:?}, for the column {name}", members.join(" or "))
    }

    fn cell(&self, value: Option<&Value>) -> Cell {
        match self.kind {
            Kind::Name | Kind::Text => value.and_then(Value::as_str).map(str::to_owned).into(),
            Kind::Integer => value.and_then(line::integer).into(),
            Kind::Flag => Cell::Flag(value.and_then(Value::as_bool).unwrap_or_default()),
            Kind::Time => value.and_then(line::time).into(),
            Kind::Map => Cell::Null,
        }
    }
}
